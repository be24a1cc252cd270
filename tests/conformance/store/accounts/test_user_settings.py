"""Each user has settings; changes to them come one after the other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dodona.core.errors import BadRequest
from dodona.store import Store
from dodona.store.accounts.user_settings import UserSettings


@pytest.fixture
def settings(store: Store) -> UserSettings:
    return UserSettings(store.database)


async def test_settings_are_kept_per_user(settings: UserSettings) -> None:
    """Who has set nothing has none; what comes back is what was set."""
    assert await settings.get("ada") == {}
    given = {"oracle_model": "oak 🌳", "thinking_enabled": True, "max_iterations": 15, "x": None}
    assert await settings.update("ada", lambda _: given) == given
    assert await settings.get("ada") == given
    assert await settings.get("bob") == {}


async def test_a_change_sees_what_was_before(settings: UserSettings) -> None:
    """What it leaves out is gone."""
    await settings.update("ada", lambda _: {"a": 1, "b": 2})
    await settings.update("ada", lambda old: {"b": old["b"] + 1})
    assert await settings.get("ada") == {"b": 3}


async def test_changes_at_once_lose_nothing(store: Store, second: Store) -> None:
    """From two processes, beginning with a user of whom nothing is known."""
    both = [UserSettings(store.database), UserSettings(second.database)]

    async def change(number: int) -> None:
        await both[number % 2].update("ada", lambda old: {**old, f"field_{number}": number})

    await asyncio.gather(*(change(number) for number in range(20)))
    assert await both[0].get("ada") == {f"field_{number}": number for number in range(20)}


async def test_a_refused_change_changes_nothing(settings: UserSettings) -> None:
    """Whoever checks the whole does it within the change."""
    await settings.update("ada", lambda _: {"max_iterations": 15})

    def refuse(_: dict[str, Any]) -> dict[str, Any]:
        raise BadRequest("max_iterations must be a whole number from 1 to 50 (got 99).")

    with pytest.raises(BadRequest, match="from 1 to 50"):
        await settings.update("ada", refuse)
    with pytest.raises(BadRequest, match="from 1 to 50"):
        await settings.update("bob", refuse)
    assert await settings.get("ada") == {"max_iterations": 15}
    assert await settings.get("bob") == {}


async def test_settings_need_a_user(settings: UserSettings) -> None:
    with pytest.raises(BadRequest, match=r"settings need a user\."):
        await settings.update("", lambda old: old)
