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


async def test_stored_settings_of_another_version_are_ignored_with_a_warning(
    storage: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Unknown names and values out of bounds; they stay stored, for the version that knows them."""
    views = AsJson(SettingsViews(storage))
    stored = {"shelf": 3, "max_iterations": 99, "thinking_enabled": "yes", "timeout_seconds": 60}
    await storage.settings.update("eve", lambda _: stored)

    for _ in range(2):
        assert await views.get("eve") == {**DEFAULTS, "timeout_seconds": 60}
    changed = await views.change("eve", {"oracle_model": "oak"})
    assert changed == {**DEFAULTS, "timeout_seconds": 60, "oracle_model": "oak"}
    assert await storage.settings.get("eve") == {**stored, "oracle_model": "oak"}
    prefix = "ignored a stored setting of user eve: "
    assert sorted(record.message.removeprefix(prefix) for record in caplog.records) == [
        "max_iterations must be a whole number from 1 to 50 (got 99). The default applies.",
        "there is no setting 'shelf'.",
        "thinking_enabled must be true or false (got 'yes'). The default applies.",
    ]
    with pytest.raises(BadRequest, match="there is no field 'shelf'"):
        await views.change("eve", {"shelf": 4})


async def test_all_settings_can_be_replaced_whatever_is_stored(storage: Store) -> None:
    """PUT stores all settings of this version, and nothing else."""
    views = AsJson(SettingsViews(storage))
    await storage.settings.update("mia", lambda _: {"shelf": 3, "max_iterations": 99})
    assert await views.replace("mia", {}) == DEFAULTS
    assert await storage.settings.get("mia") == DEFAULTS
