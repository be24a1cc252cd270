"""AgentConfig: fields, defaults and bounds of seed 001."""

from __future__ import annotations

import pytest

from dodona.agent.turn_control.config import AgentConfig
from dodona.core.errors import BadRequest, DodonaError


def test_defaults() -> None:
    """What zero configuration uses."""
    assert AgentConfig().as_dict() == {
        "max_iterations": 15,
        "soft_warning_percent": 70,
        "token_budget": 50_000,
        "token_warning_percent": 80,
        "timeout_seconds": 120,
        "max_tool_calls_per_turn": 5,
        "max_parallel_tools": 3,
    }


@pytest.mark.parametrize(
    ("name", "lowest", "highest"),
    [
        ("max_iterations", 1, 50),
        ("soft_warning_percent", 50, 90),
        ("token_budget", 1000, 200_000),
        ("token_warning_percent", 50, 95),
        ("timeout_seconds", 10, 600),
        ("max_tool_calls_per_turn", 1, 20),
        ("max_parallel_tools", 1, 10),
    ],
)
def test_bounds(name: str, lowest: int, highest: int) -> None:
    """Both ends are allowed, one more is refused with the bounds in the message."""
    for value in (lowest, highest):
        assert getattr(AgentConfig(**{name: value}), name) == value
    for value in (lowest - 1, highest + 1):
        with pytest.raises(BadRequest) as refused:
            AgentConfig(**{name: value})
        words = f"{name} must be a whole number from {lowest:,} to {highest:,} (got {value})."
        assert str(refused.value) == words


@pytest.mark.parametrize("value", [True, 2.5, "7", None])
def test_only_whole_numbers(value: object) -> None:
    """Nothing is converted."""
    with pytest.raises(BadRequest, match="max_iterations must be a whole number"):
        AgentConfig(max_iterations=value)


def test_every_mistake_at_once() -> None:
    """Not one after the other."""
    with pytest.raises(DodonaError) as refused:
        AgentConfig(max_iterations=0, token_budget=1)
    assert [str(problem).split()[0] for problem in refused.value.problems()] == [
        "max_iterations",
        "token_budget",
    ]


@pytest.mark.parametrize(("turns", "percent", "at"), [(15, 70, 10), (10, 70, 7), (1, 50, 0)])
def test_when_to_warn(turns: int, percent: int, at: int) -> None:
    """At the whole number below the percentage."""
    config = AgentConfig(max_iterations=turns, soft_warning_percent=percent)
    assert config.iteration_warning == at
