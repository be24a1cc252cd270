"""What a user has chosen: models and limits."""

from __future__ import annotations

from starlette.responses import Response

from dodona.agent.settings import ModelSettings
from dodona.gateway.answers import answer
from dodona.gateway.operation import Operation, Says
from dodona.gateway.visit import Visit


async def get(visit: Visit) -> Response:
    return answer(await visit.agency.preferences.get(visit.user_id))


async def change(visit: Visit) -> Response:
    values = await visit.document()
    return answer(await visit.agency.preferences.change(visit.user_id, values))


async def replace(visit: Visit) -> Response:
    """All of them at once: what is missing takes its default."""
    values = {**ModelSettings().as_dict(), **await visit.document()}
    return answer(await visit.agency.preferences.change(visit.user_id, values))


_SETTINGS = {200: Says("All settings.", "Settings")}
_CHANGING = (400, 408, 413, 415, 503)

OPERATIONS = (
    Operation(
        method="GET",
        path="/api/settings",
        name="getSettings",
        about="Your settings.",
        handle=get,
        answers=_SETTINGS,
        errors=(400, 503),
    ),
    Operation(
        method="PATCH",
        path="/api/settings",
        name="changeSettings",
        about="Change some settings.",
        handle=change,
        body="SettingsChange",
        answers=_SETTINGS,
        errors=_CHANGING,
    ),
    Operation(
        method="PUT",
        path="/api/settings",
        name="replaceSettings",
        about="Set all settings; those left out take their defaults.",
        handle=replace,
        body="SettingsChange",
        answers=_SETTINGS,
        errors=_CHANGING,
    ),
)
