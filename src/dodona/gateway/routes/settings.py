"""Settings of a user: models and limits."""

from __future__ import annotations

from dodona.agent.turn_control.settings import ModelSettings, SettingsChange
from dodona.gateway.http.operation import Routes
from dodona.gateway.http.request import ApiRequest

routes = Routes()


@routes.get("/api/settings")
async def get_settings(request: ApiRequest) -> ModelSettings:
    """Retrieve your settings."""
    return await request.api.settings.get(request.user_id)


@routes.patch("/api/settings")
async def change_settings(request: ApiRequest, body: SettingsChange) -> ModelSettings:
    """Update some settings."""
    return await request.api.settings.change(request.user_id, body)


@routes.put("/api/settings")
async def replace_settings(request: ApiRequest, body: SettingsChange) -> ModelSettings:
    """Replace all settings. Missing ones get their defaults."""
    return await request.api.settings.replace(request.user_id, body)
