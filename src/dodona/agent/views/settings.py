"""Preferences: what a user has chosen of ModelSettings; the rest are defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dodona.agent.turn_control.settings import ModelSettings
from dodona.core.storage import Storage


class SettingsViews:
    """The settings of all users; every call says whose."""

    def __init__(self, storage: Storage) -> None:
        self._settings = storage.settings

    async def get(self, user_id: str) -> dict[str, Any]:
        """The whole flat map."""
        return ModelSettings.read(await self._settings.get(user_id)).as_dict()

    async def change(self, user_id: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Change some of them, all or none; the whole map after that.

        Only what was chosen is kept, so that a better default reaches those who chose nothing.
        """
        ModelSettings.read(values)  # before anything is locked: mistakes are the likely thing

        def change(kept: dict[str, Any]) -> dict[str, Any]:
            chosen = {**kept, **values}
            ModelSettings.read(chosen)
            return chosen

        return ModelSettings.read(await self._settings.change(user_id, change)).as_dict()
