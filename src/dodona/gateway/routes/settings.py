"""Settings of a user: models and limits."""

from __future__ import annotations

from starlette.responses import Response

from dodona.agent.turn_control.settings import ModelSettings
from dodona.gateway.http.operation import Operation, ResponseSpec
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response


async def get_settings(request: ApiRequest) -> Response:
    """Return the caller's settings."""
    return json_response(await request.api.settings.get(request.user_id))


async def change_settings(request: ApiRequest) -> Response:
    """Change some settings."""
    values = await request.json()
    return json_response(await request.api.settings.change(request.user_id, values))


async def replace_settings(request: ApiRequest) -> Response:
    """Replace all settings; missing ones get their defaults."""
    values = {**ModelSettings().as_dict(), **await request.json()}
    return json_response(await request.api.settings.change(request.user_id, values))


_SETTINGS_RESPONSE = {200: ResponseSpec("All settings.", "Settings")}
_WRITE_ERRORS = (400, 408, 413, 415, 503)

OPERATIONS = (
    Operation(
        method="GET",
        path="/api/settings",
        operation_id="getSettings",
        summary="Retrieve your settings.",
        handler=get_settings,
        responses=_SETTINGS_RESPONSE,
        error_statuses=(400, 503),
    ),
    Operation(
        method="PATCH",
        path="/api/settings",
        operation_id="changeSettings",
        summary="Update some settings.",
        handler=change_settings,
        body_schema="SettingsChange",
        responses=_SETTINGS_RESPONSE,
        error_statuses=_WRITE_ERRORS,
    ),
    Operation(
        method="PUT",
        path="/api/settings",
        operation_id="replaceSettings",
        summary="Replace all settings. Missing ones get their defaults.",
        handler=replace_settings,
        body_schema="SettingsChange",
        responses=_SETTINGS_RESPONSE,
        error_statuses=_WRITE_ERRORS,
    ),
)
