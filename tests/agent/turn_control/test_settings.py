"""ModelSettings: one flat map per user, defaults for what is missing."""

from __future__ import annotations

import pytest

from dodona.agent.turn_control.settings import ModelSettings, SettingsChange, changed_values
from dodona.core.errors import BadRequest
from dodona.core.json_document import parse_document

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
    assert parse_document(ModelSettings, {}).as_dict() == SEED
    before = {"oracle_model": "oak", "thinking_enabled": False}
    assert parse_document(ModelSettings, before).as_dict() == {**SEED, **before}


def test_what_is_changed_is_kept_and_read_again() -> None:
    """The rest stays."""
    change = parse_document(SettingsChange, {"max_iterations": 3, "subagent_model": "elm"})
    changed = ModelSettings(**SEED | changed_values(change))
    assert (changed.limits.max_iterations, changed.subagent_model) == (3, "elm")
    assert parse_document(ModelSettings, changed.as_dict()) == changed


def test_every_mistake_at_once() -> None:
    """Bounds in the message; the nearest name for one that there is not."""
    with pytest.raises(BadRequest) as refused:
        parse_document(
            SettingsChange,
            {
                "max_iteration": 3,
                "max_parallel_tools": 11,
                "librarian_timeout": 1,
                "thinking_enabled": "yes",
                "oracle_model": 4,
            },
        )
    assert str(refused.value).splitlines() == [
        "there is no field 'max_iteration'. Did you mean 'max_iterations'?",
        "max_parallel_tools must be a whole number from 1 to 10 (got 11).",
        "oracle_model must be a string (got 4).",
        "thinking_enabled must be true or false (got 'yes').",
        "librarian_timeout must be a whole number from 10 to 7,200 (got 1).",
    ]
