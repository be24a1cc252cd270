"""Methods for the status of the gateway and of the caller's budgets."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from dodona.core.json_document import JsonDocument
from dodona.core.version import __version__
from dodona.gateway.errors import ShuttingDown
from dodona.gateway.http.parameter import whole
from dodona.gateway.routes.usage import BudgetList
from dodona.gateway.websocket.call import Call
from dodona.gateway.websocket.method import method


class Pong(JsonDocument):
    """The connection works."""

    pong: Literal[True] = True


class PluginList(JsonDocument):
    """The loaded plugins."""

    plugins: list[str]


@method("ping", result="`pong`: true.")
async def ping(_call: Call) -> Pong:
    """Check the connection. Responds immediately."""
    return Pong()


@method(
    "status",
    result="`status`, `version`, `user`, `default_agent`, `agents` and those of `/readyz`.",
)
async def get_status(call: Call) -> dict[str, Any]:
    """Show whether the gateway is ready, the agents and the authenticated user.

    Raises ShuttingDown during shutdown, as `/readyz` does.
    """
    if call.state.shutdown.has_started:
        raise ShuttingDown("Dodona is shutting down.")
    return {
        "status": "ready",
        "version": __version__,
        "user": call.user_id,
        "default_agent": call.state.routing.current.default_agent,
        "agents": call.caller.allowed_agents(call.api.agents()),
        **await call.state.check_readiness(),
    }


@method("plugin.list", result="`plugins`: a list.")
async def list_plugins(_call: Call) -> PluginList:
    """List the loaded plugins."""
    return PluginList([])


@method("budget.status", result="`budgets`: a list, as in `GET /api/budgets`.")
async def get_budgets(
    call: Call,
    limit: Annotated[int, whole("Maximum number of budgets of each kind.", 1, 200)] = 50,
) -> BudgetList:
    """Show the budgets that apply to you, with the remaining amounts."""
    budgets = await call.api.spending.budgets(call.user_id, max_rows=limit, token=call.caller.token)
    return BudgetList(budgets)
