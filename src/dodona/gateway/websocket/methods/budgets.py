"""What is left of the budgets that one's messages fall under."""

from __future__ import annotations

from typing import Any, Final

from dodona.gateway.websocket.call import Call, Method
from dodona.gateway.websocket.parameter import Field


async def status(call: Call) -> dict[str, Any]:
    limit = call.values["limit"]
    return {"budgets": await call.agency.spending.budgets(call.user_id, most=limit)}


METHODS: Final = (
    Method(
        name="budget.status",
        about="What is left of the budgets that your messages fall under.",
        result="`budgets`: a list, as in `GET /api/budgets`.",
        handle=status,
        fields=(
            Field(
                name="limit",
                about="How many at most of each kind.",
                bounds=(1, 200),
                default=50,
            ),
        ),
    ),
)
