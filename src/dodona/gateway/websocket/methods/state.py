"""Methods for the status of the gateway."""

from __future__ import annotations

from typing import Any, Final

import dodona
from dodona.gateway.errors import ShuttingDown
from dodona.gateway.websocket.call import Call, RpcMethod


async def ping(_call: Call) -> dict[str, Any]:
    """Answer a ping."""
    return {"pong": True}


async def get_status(call: Call) -> dict[str, Any]:
    """Return the readiness. Raises ShuttingDown during shutdown, as `/readyz` does."""
    if call.state.shutdown.has_started:
        raise ShuttingDown("Dodona is shutting down.")
    return {
        "status": "ready",
        "version": dodona.__version__,
        "user": call.user_id,
        "default_agent": call.state.routing.current.default_agent,
        "agents": [*call.api.agents().ids()],
        **await call.state.check_readiness(),
    }


async def list_plugins(_call: Call) -> dict[str, Any]:
    """Return the loaded plugins."""
    return {"plugins": []}


METHODS: Final = (
    RpcMethod(
        name="ping",
        description="Check the connection. Responds immediately.",
        result="`pong`: true.",
        handle=ping,
    ),
    RpcMethod(
        name="status",
        description="Show whether the gateway is ready, the agents and the authenticated user.",
        result="`status`, `version`, `user`, `default_agent`, `agents` and those of `/readyz`.",
        handle=get_status,
    ),
    RpcMethod(
        name="plugin.list",
        description="List the loaded plugins.",
        result="`plugins`: a list.",
        handle=list_plugins,
    ),
)
