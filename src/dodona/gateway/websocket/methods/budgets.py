"""Methods for budgets."""

from __future__ import annotations

from typing import Any, Final

from dodona.gateway.websocket.call import Call, RpcMethod
from dodona.gateway.websocket.parameter import MethodParameter


async def get_budgets(call: Call) -> dict[str, Any]:
    """Return the budgets that apply to the caller."""
    limit = call.params["limit"]
    return {"budgets": await call.api.spending.budgets(call.user_id, max_rows=limit)}


METHODS: Final = (
    RpcMethod(
        name="budget.status",
        description="Show the budgets that apply to you, with the remaining amounts.",
        result="`budgets`: a list, as in `GET /api/budgets`.",
        handle=get_budgets,
        parameters=(
            MethodParameter(
                name="limit",
                description="Maximum number of budgets of each kind.",
                bounds=(1, 200),
                default=50,
            ),
        ),
    ),
)
