"""What a user has chosen: models and limits."""

from __future__ import annotations

from starlette.responses import Response

from dodona.agent.turn_control.settings import ModelSettings
from dodona.gateway.http.operation import Operation, ResponseSpec
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response


async def get(visit: ApiRequest) -> Response:
    return json_response(await visit.agency.preferences.get(visit.user_id))


async def change(visit: ApiRequest) -> Response:
    values = await visit.json()
    return json_response(await visit.agency.preferences.change(visit.user_id, values))


async def replace(visit: ApiRequest) -> Response:
    """All of them at once: what is missing takes its default."""
    values = {**ModelSettings().as_dict(), **await visit.json()}
    return json_response(await visit.agency.preferences.change(visit.user_id, values))


_SETTINGS = {200: ResponseSpec("All settings.", "Settings")}
_CHANGING = (400, 408, 413, 415, 503)

OPERATIONS = (
    Operation(
        method="GET",
        path="/api/settings",
        name="getSettings",
        summary="Your settings.",
        handle=get,
        responses=_SETTINGS,
        errors=(400, 503),
    ),
    Operation(
        method="PATCH",
        path="/api/settings",
        name="changeSettings",
        summary="Change some settings.",
        handle=change,
        body="SettingsChange",
        responses=_SETTINGS,
        errors=_CHANGING,
    ),
    Operation(
        method="PUT",
        path="/api/settings",
        name="replaceSettings",
        summary="Set all settings; those left out take their defaults.",
        handle=replace,
        body="SettingsChange",
        responses=_SETTINGS,
        errors=_CHANGING,
    ),
)
