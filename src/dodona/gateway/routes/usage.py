"""Usage and budgets: the caller's, and with scope admin those of all users."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from dodona.core.domain.usage import GroupBy, UsageQuery
from dodona.core.errors import BadRequest, did_you_mean
from dodona.gateway.http.json_schema import (
    Schema,
    array,
    date_time,
    enum,
    integer,
    nullable,
    number,
    response_object,
    string,
)
from dodona.gateway.http.operation import Operation, ResponseSpec
from dodona.gateway.http.parameter import RequestParameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response

ALL_USERS: Final = "*"


async def get_usage(request: ApiRequest) -> Response:
    """Return usage of whole UTC days; `until` is inclusive."""
    values = request.params
    query = UsageQuery.from_days(
        _requested_user(request), since=values["since"], until=values["until"]
    )
    usage = await request.api.spending.usage(
        query, _read_group_by(values["by"]), max_rows=values["limit"]
    )
    return json_response(usage)


async def get_budgets(request: ApiRequest) -> Response:
    """Return the budgets that apply to the caller's model calls."""
    budgets = await request.api.spending.budgets(
        _requested_user(request), max_rows=request.params["limit"]
    )
    return json_response({"budgets": budgets})


def _requested_user(request: ApiRequest) -> str | None:
    """Return the requested user, by default the caller; None means all users."""
    user: str | None = request.params["user"]
    if user is None or user == request.user_id:
        return request.user_id
    request.caller.require_scope("admin")
    return None if user == ALL_USERS else user


def _read_group_by(name: str) -> GroupBy:
    names = [each.value for each in GroupBy]
    if name not in names:
        hint = did_you_mean(name, names) or f"Groups are {', '.join(names)}."
        raise BadRequest(f"usage cannot be grouped by {name!r:.80}.", hint=hint)
    return GroupBy(name)


_USER = RequestParameter(
    name="user", description="The user, with scope admin; * for all users. By default you."
)

_TOTALS: Final = {
    "calls": integer(),
    "input_tokens": integer("Including tokens read from a cache."),
    "output_tokens": integer("Including reasoning tokens."),
    "cache_read_tokens": integer(),
    "cache_write_tokens": integer(),
    "reasoning_tokens": integer(),
    "cost_usd": number("Cost of the calls with a known price."),
    "unpriced": integer("Calls without a known price."),
    "estimated": integer("Calls whose tokens were estimated, because the provider reported none."),
}
_GROUP_KEYS: Final = {
    "day": string(format="date"),
    "agent_id": string(),
    "provider": string(),
    "model": string(),
    "session_key": nullable(string()),
    "user_id": string(),
}

SCHEMAS: Final[dict[str, Schema]] = {
    "Usage": response_object(
        {
            "by": enum(*(by.value for by in GroupBy)),
            "total": response_object(_TOTALS),
            "usage": array(
                response_object({**_GROUP_KEYS, **_TOTALS}, optional=tuple(_GROUP_KEYS))
            ),
        }
    ),
    "Budgets": response_object(
        {
            "budgets": array(
                response_object(
                    {
                        "kind": enum("session", "agent", "user", "daily", "monthly"),
                        "scope": string("Such as user:ada or daily."),
                        "period": nullable(string("The day or month.")),
                        "unit": enum("tokens", "usd"),
                        "ceiling": number(),
                        "used": number(),
                        "held": number("Reserved by calls in progress."),
                        "left": number(),
                        "resets_at": nullable(date_time()),
                    }
                )
            )
        }
    ),
}

OPERATIONS = (
    Operation(
        method="GET",
        path="/api/usage",
        operation_id="showUsage",
        summary="Retrieve model usage and cost.",
        handler=get_usage,
        parameters=(
            RequestParameter(
                name="by",
                description="Group by day, agent, model, session or user.",
                default=GroupBy.DAY.value,
            ),
            RequestParameter(name="since", description="The first day in UTC, such as 2026-11-01."),
            RequestParameter(name="until", description="The last day, inclusive."),
            _USER,
            RequestParameter(
                name="limit", description="Maximum number of groups.", bounds=(1, 1000), default=100
            ),
        ),
        responses={200: ResponseSpec("The total and the groups.", "Usage")},
        error_statuses=(400, 503),
    ),
    Operation(
        method="GET",
        path="/api/budgets",
        operation_id="showBudgets",
        summary="List the budgets that apply, with the remaining amounts.",
        handler=get_budgets,
        parameters=(
            _USER,
            RequestParameter(
                name="limit",
                description="Maximum number of sessions, agents and users.",
                bounds=(1, 1000),
                default=100,
            ),
        ),
        responses={200: ResponseSpec("The budgets with a ceiling.", "Budgets")},
        error_statuses=(400, 503),
    ),
)
