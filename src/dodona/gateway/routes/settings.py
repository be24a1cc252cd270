"""What a user has chosen: models and limits."""

from __future__ import annotations

from starlette.responses import Response

from dodona.agent.turn_control.settings import ModelSettings
from dodona.gateway.http.operation import Operation, ResponseSpec
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response


async def get_settings(request: ApiRequest) -> Response:
    return json_response(await request.api.settings.get(request.user_id))


async def change_settings(request: ApiRequest) -> Response:
    values = await request.json()
    return json_response(await request.api.settings.change(request.user_id, values))


async def replace_settings(request: ApiRequest) -> Response:
    """All of them at once: what is missing takes its default."""
    values = {**ModelSettings().as_dict(), **await request.json()}
    return json_response(await request.api.settings.change(request.user_id, values))


_SETTINGS_RESPONSE = {200: ResponseSpec("All settings.", "Settings")}
_WRITE_ERRORS = (400, 408, 413, 415, 503)

OPERATIONS = (
    Operation(
        method="GET",
        path="/api/settings",
        name="getSettings",
        summary="Your settings.",
        handle=get_settings,
        responses=_SETTINGS_RESPONSE,
        errors=(400, 503),
    ),
    Operation(
        method="PATCH",
        path="/api/settings",
        name="changeSettings",
        summary="Change some settings.",
        handle=change_settings,
        body="SettingsChange",
        responses=_SETTINGS_RESPONSE,
        errors=_WRITE_ERRORS,
    ),
    Operation(
        method="PUT",
        path="/api/settings",
        name="replaceSettings",
        summary="Set all settings; those left out take their defaults.",
        handle=replace_settings,
        body="SettingsChange",
        responses=_SETTINGS_RESPONSE,
        errors=_WRITE_ERRORS,
    ),
)
