"""Is somebody there, and what have they got?"""

from __future__ import annotations

from typing import Any, Final

import dodona
from dodona.gateway.errors import ShuttingDown
from dodona.gateway.websocket.call import Call, Method


async def ping(_call: Call) -> dict[str, Any]:
    return {"pong": True}


async def get_status(call: Call) -> dict[str, Any]:
    """Not while we are leaving, as for whoever balances load."""
    if call.state.shutdown.has_started:
        raise ShuttingDown("Dodona is stopping.")
    return {
        "status": "ready",
        "version": dodona.__version__,
        "user": call.user_id,
        "default_agent": call.state.routing.current.default_agent,
        "agents": [*call.api.agents().ids()],
        **await call.state.check_readiness(),
    }


async def list_plugins(_call: Call) -> dict[str, Any]:
    return {"plugins": []}


METHODS: Final = (
    Method(
        name="ping",
        description="Answers at once.",
        result="`pong`: true.",
        handle=ping,
    ),
    Method(
        name="status",
        description="Whether messages can be answered, by which agents, and who you are.",
        result="`status`, `version`, `user`, `default_agent`, `agents`, and what `/readyz` tells.",
        handle=get_status,
    ),
    Method(
        name="plugin.list",
        description="The plugins that are loaded.",
        result="`plugins`: a list.",
        handle=list_plugins,
    ),
)
