"""Usage and budgets: the caller's, and with scope admin those of all users."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from msgspec import Meta

from dodona.agent.views.spending import BudgetDocument, UsageDocument
from dodona.core.domain.usage import GroupBy, UsageQuery
from dodona.core.json_document import JsonDocument
from dodona.gateway.http.operation import Routes
from dodona.gateway.http.parameter import text, whole
from dodona.gateway.http.request import ApiRequest

ALL_USERS: Final = "*"

routes = Routes()

User: TypeAlias = Annotated[
    str, text("The user, with scope admin; * for all users. By default you.")
]


class BudgetList(JsonDocument):
    """The budgets with a ceiling."""

    budgets: list[BudgetDocument]


@routes.get("/api/usage")
async def show_usage(
    request: ApiRequest,
    by: Annotated[
        GroupBy, Meta(description="Group by day, agent, model, session or user.")
    ] = GroupBy.DAY,
    since: Annotated[str, text("The first day in UTC, such as 2026-11-01.")] | None = None,
    until: Annotated[str, text("The last day, inclusive.")] | None = None,
    user: User | None = None,
    limit: Annotated[int, whole("Maximum number of groups.", 1, 1000)] = 100,
) -> UsageDocument:
    """Retrieve model usage and cost."""
    query = UsageQuery.from_days(_requested_user(request, user), since=since, until=until)
    return await request.api.spending.usage(query, by, max_rows=limit)


@routes.get("/api/budgets")
async def show_budgets(
    request: ApiRequest,
    user: User | None = None,
    limit: Annotated[int, whole("Maximum number of sessions, agents and users.", 1, 1000)] = 100,
) -> BudgetList:
    """List the budgets that apply, with the remaining amounts."""
    requested = _requested_user(request, user)
    token = request.caller.token if requested == request.user_id else None
    return BudgetList(await request.api.spending.budgets(requested, max_rows=limit, token=token))


def _requested_user(request: ApiRequest, user: str | None) -> str | None:
    """Return the requested user, by default the caller; None means all users."""
    if user is None or user == request.user_id:
        return request.user_id
    request.caller.require_scope("admin")
    return None if user == ALL_USERS else user
