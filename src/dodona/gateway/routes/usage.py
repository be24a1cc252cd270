"""Usage and budgets: one's own, and for scope admin everybody's."""

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
    """Whole days of UTC: `until` is the last one that counts."""
    values = request.params
    span = UsageQuery.from_days(
        _requested_user(request), since=values["since"], until=values["until"]
    )
    found = await request.api.spending.usage(
        span, _read_group_by(values["by"]), max_rows=values["limit"]
    )
    return json_response(found)


async def get_budgets(request: ApiRequest) -> Response:
    found = await request.api.spending.budgets(
        _requested_user(request), max_rows=request.params["limit"]
    )
    return json_response({"budgets": found})


def _requested_user(request: ApiRequest) -> str | None:
    """One's own, unless another is named; None is everybody's."""
    user: str | None = request.params["user"]
    if user is None or user == request.user_id:
        return request.user_id
    request.caller.require_scope("admin")
    return None if user == ALL_USERS else user


def _read_group_by(name: str) -> GroupBy:
    names = [each.value for each in GroupBy]
    if name not in names:
        hint = did_you_mean(name, names) or f"It can be {', '.join(names)}."
        raise BadRequest(f"usage cannot be put together by {name!r:.80}.", hint=hint)
    return GroupBy(name)


_USER = RequestParameter(
    name="user", description="Whose, for scope admin; * is everybody's. Your own if none."
)

_TOTALS: Final = {
    "calls": integer(),
    "input_tokens": integer("All that was read, from a cache too."),
    "output_tokens": integer("All that was written, reasoning too."),
    "cache_read_tokens": integer(),
    "cache_write_tokens": integer(),
    "reasoning_tokens": integer(),
    "cost_usd": number("Of the calls whose price is known."),
    "unpriced": integer("Calls whose price is not."),
    "estimated": integer("Calls that were counted here, for the provider did not say."),
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
                        "scope": string("Like user:ada, or daily."),
                        "period": nullable(string("A day or a month.")),
                        "unit": enum("tokens", "usd"),
                        "ceiling": number(),
                        "used": number(),
                        "held": number("By calls on their way."),
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
        name="showUsage",
        summary="What calls of models came to.",
        handle=get_usage,
        parameters=(
            RequestParameter(
                name="by",
                description="Put together by day, agent, model, session or user.",
                default=GroupBy.DAY.value,
            ),
            RequestParameter(name="since", description="The first day, as in 2026-11-01, of UTC."),
            RequestParameter(name="until", description="The last day."),
            _USER,
            RequestParameter(
                name="limit", description="How many at most.", bounds=(1, 1000), default=100
            ),
        ),
        responses={200: ResponseSpec("All of it, and in parts.", "Usage")},
        errors=(400, 503),
    ),
    Operation(
        method="GET",
        path="/api/budgets",
        name="showBudgets",
        summary="What is left of the budgets that calls fall under.",
        handle=get_budgets,
        parameters=(
            _USER,
            RequestParameter(
                name="limit",
                description="How many sessions, agents and users at most.",
                bounds=(1, 1000),
                default=100,
            ),
        ),
        responses={200: ResponseSpec("The budgets that have a ceiling.", "Budgets")},
        errors=(400, 503),
    ),
)
