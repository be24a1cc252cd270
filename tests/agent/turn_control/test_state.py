"""AgentState: immutable, with invariants and derived properties."""

from __future__ import annotations

from time import time
from typing import Any

import pytest

from dodona.agent.turn_control.config import AgentConfig
from dodona.agent.turn_control.state import AgentState


def state(**values: Any) -> AgentState:
    given = {"user_id": "ada", "project_id": "default", "config": AgentConfig(), **values}
    return AgentState(**given)


def test_it_does_not_change() -> None:
    """Neither its fields nor its extensions, nor through what was given for them."""
    given = {"a": 1}
    made = state(extensions=given)
    with pytest.raises(AttributeError):
        made.turn = 2  # type: ignore[misc]
    with pytest.raises(TypeError):
        made.extensions["a"] = 2  # type: ignore[index]
    given["a"] = 3
    assert made.extensions["a"] == 1
    assert (made.with_extensions(b=2).extensions, made.extensions) == ({"a": 1, "b": 2}, {"a": 1})


@pytest.mark.parametrize(
    "wrong",
    [
        {"turn": -1},
        {"tokens_used": -1},
        {"start_time": time() + 3600},
        {"recent_actions": ("a", "b", "c", "d")},
    ],
)
def test_invariants(wrong: dict[str, Any]) -> None:
    """A state that cannot be is not made."""
    with pytest.raises(ValueError, match=r"turn|tokens_used|start_time|actions"):
        state(**wrong)


def test_derived_properties() -> None:
    """Percentages, and whether it has ended."""
    made = state(turn=3, tokens_used=25_000, start_time=time() - 5)
    assert made.iteration_percent == pytest.approx(20)
    assert made.token_percent == pytest.approx(50)
    assert made.elapsed_seconds >= 5
    assert not made.is_terminal
    assert made.terminated("timeout").is_terminal
    assert made.terminated("timeout").terminated("cancelled").termination_reason == "timeout"


def test_a_pause_does_not_count() -> None:
    """And never moves the start into the future."""
    made = state(start_time=time() - 100)
    assert made.with_pause(60).elapsed_seconds == pytest.approx(40, abs=5)
    assert made.with_pause(1000).elapsed_seconds == pytest.approx(0, abs=5)
