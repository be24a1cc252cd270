"""ModelSettings: one flat map per user, defaults for what is missing."""

from __future__ import annotations

import pytest

from dodona.agent.turn_control.settings import ModelSettings
from dodona.core.errors import BadRequest

SEED = {
    "oracle_model": "",
    "subagent_model": "",
    "thinking_enabled": True,
    "librarian_timeout": 1200,
    "max_context_nodes": 30,
    "max_iterations": 15,
    "soft_warning_percent": 70,
    "token_budget": 50_000,
    "token_warning_percent": 80,
    "timeout_seconds": 120,
    "max_tool_calls_per_turn": 5,
    "max_parallel_tools": 3,
}


def test_defaults_are_those_of_the_seed() -> None:
    """Also where a map was kept before there were limits."""
    assert ModelSettings.read({}).as_dict() == SEED
    before = {"oracle_model": "oak", "thinking_enabled": False}
    assert ModelSettings.read(before).as_dict() == {**SEED, **before}


def test_what_is_changed_is_kept_and_read_again() -> None:
    """The rest stays."""
    changed = ModelSettings.read({}).with_changes({"max_iterations": 3, "subagent_model": "elm"})
    assert (changed.limits.max_iterations, changed.subagent_model) == (3, "elm")
    assert ModelSettings.read(changed.as_dict()) == changed


def test_every_mistake_at_once() -> None:
    """Bounds in the message; the nearest name for one that there is not."""
    with pytest.raises(BadRequest) as refused:
        ModelSettings.read(
            {
                "max_iteration": 3,
                "max_parallel_tools": 11,
                "librarian_timeout": 1,
                "thinking_enabled": "yes",
                "oracle_model": 4,
            }
        )
    assert str(refused.value).splitlines() == [
        "there is no setting max_iteration. Did you mean 'max_iterations'?",
        "max_parallel_tools must be a whole number from 1 to 10 (got 11).",
        "librarian_timeout must be a whole number from 10 to 7200 (got 1).",
        "oracle_model must be the name of a model.",
        "thinking_enabled must be true or false.",
    ]
