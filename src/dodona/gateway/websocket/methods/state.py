"""Is somebody there, and what have they got?"""

from __future__ import annotations

from typing import Any, Final

import dodona
from dodona.gateway.errors import ShuttingDown
from dodona.gateway.websocket.call import Call, Method


async def ping(_call: Call) -> dict[str, Any]:
    return {"pong": True}


async def status(call: Call) -> dict[str, Any]:
    """Not while we are leaving, as for whoever balances load."""
    if call.gate.closing.is_leaving:
        raise ShuttingDown("Dodona is stopping.")
    return {
        "status": "ready",
        "version": dodona.__version__,
        "user": call.user_id,
        "default_agent": call.gate.routing.current.default_agent,
        "agents": [*call.agency.agents().names()],
        **await call.gate.ready(),
    }


async def plugins(_call: Call) -> dict[str, Any]:
    return {"plugins": []}


METHODS: Final = (
    Method(
        name="ping",
        about="Answers at once.",
        result="`pong`: true.",
        handle=ping,
    ),
    Method(
        name="status",
        about="Whether messages can be answered, by which agents, and who you are.",
        result="`status`, `version`, `user`, `default_agent`, `agents`, and what `/readyz` tells.",
        handle=status,
    ),
    Method(
        name="plugin.list",
        about="The plugins that are loaded.",
        result="`plugins`: a list.",
        handle=plugins,
    ),
)
