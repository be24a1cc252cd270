"""Preferences: what a user has chosen, over the defaults."""

from __future__ import annotations

import asyncio

import pytest

from dodona.agent.turn_control.settings import ModelSettings
from dodona.agent.views import SettingsViews
from dodona.core.errors import BadRequest
from dodona.store import Store
from tests.agent.views.as_json import AsJson

DEFAULTS = ModelSettings().as_dict()


async def test_who_has_chosen_nothing_has_the_defaults(storage: Store) -> None:
    """The whole flat map, of seed 001."""
    assert await AsJson(SettingsViews(storage)).get("ada") == DEFAULTS


async def test_a_choice_is_kept_and_the_rest_stays(storage: Store) -> None:
    """For this user, and no other."""
    preferences = AsJson(SettingsViews(storage))
    chosen = {**DEFAULTS, "max_iterations": 3, "oracle_model": "oak"}
    assert await preferences.change("ada", {"max_iterations": 3}) == {**chosen, "oracle_model": ""}
    assert await preferences.change("ada", {"oracle_model": "oak"}) == chosen
    assert await preferences.get("ada") == chosen
    assert await preferences.get("ben") == DEFAULTS


async def test_only_what_was_chosen_is_kept(storage: Store) -> None:
    """A default that changes with a later version reaches those who did not choose."""
    await AsJson(SettingsViews(storage)).change("ada", {"timeout_seconds": 60})
    assert await storage.settings.get("ada") == {"timeout_seconds": 60}


async def test_mistakes_are_told_all_at_once_and_change_nothing(storage: Store) -> None:
    """With the bounds; also what is right beside them is left alone."""
    preferences = AsJson(SettingsViews(storage))
    await preferences.change("ada", {"max_iterations": 7})
    with pytest.raises(BadRequest) as refused:
        await preferences.change(
            "ada",
            {"max_iterations": 51, "max_tool": 1, "thinking_enabled": 1, "token_budget": 2000},
        )
    assert str(refused.value).splitlines() == [
        "there is no field 'max_tool'. Did you mean 'max_parallel_tools'?",
        "max_iterations must be a whole number from 1 to 50 (got 51).",
        "thinking_enabled must be true or false (got 1).",
    ]
    assert await preferences.get("ada") == {**DEFAULTS, "max_iterations": 7}


async def test_changes_at_the_same_time_do_not_undo_each_other(storage: Store) -> None:
    """Each sees what the ones before it have left."""
    preferences = AsJson(SettingsViews(storage))
    wanted = {name: value + 1 for name, value in DEFAULTS.items() if type(value) is int}
    await asyncio.gather(
        *(preferences.change("ada", {name: value}) for name, value in wanted.items())
    )
    assert await preferences.get("ada") == {**DEFAULTS, **wanted}
