"""What is left of the budgets that one's messages fall under."""

from __future__ import annotations

from typing import Any, Final

from dodona.gateway.websocket.call import Call, Method
from dodona.gateway.websocket.parameter import MethodParameter


async def get_budgets(call: Call) -> dict[str, Any]:
    limit = call.params["limit"]
    return {"budgets": await call.api.spending.budgets(call.user_id, max_rows=limit)}


METHODS: Final = (
    Method(
        name="budget.status",
        description="What is left of the budgets that your messages fall under.",
        result="`budgets`: a list, as in `GET /api/budgets`.",
        handle=get_budgets,
        parameters=(
            MethodParameter(
                name="limit",
                description="How many at most of each kind.",
                bounds=(1, 200),
                default=50,
            ),
        ),
    ),
)
