"""Usage and budgets: one's own, and for scope admin everybody's."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from dodona.core.domain.usage import GroupBy, Period
from dodona.core.errors import BadRequest, did_you_mean
from dodona.gateway.http.json_schema import (
    Schema,
    document,
    listed,
    number,
    one_of,
    or_null,
    text,
    time,
    whole,
)
from dodona.gateway.http.operation import Operation, ResponseSpec
from dodona.gateway.http.parameter import Parameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response

EVERYBODY: Final = "*"


async def usage(visit: ApiRequest) -> Response:
    """Whole days of UTC: `until` is the last one that counts."""
    values = visit.values
    span = Period.days(_whose(visit), since=values["since"], until=values["until"])
    found = await visit.agency.spending.usage(span, _by(values["by"]), most=values["limit"])
    return json_response(found)


async def budgets(visit: ApiRequest) -> Response:
    found = await visit.agency.spending.budgets(_whose(visit), most=visit.values["limit"])
    return json_response({"budgets": found})


def _whose(visit: ApiRequest) -> str | None:
    """One's own, unless another is named; None is everybody's."""
    user: str | None = visit.values["user"]
    if user is None or user == visit.user_id:
        return visit.user_id
    visit.caller.require_scope("admin")
    return None if user == EVERYBODY else user


def _by(name: str) -> GroupBy:
    names = [each.value for each in GroupBy]
    if name not in names:
        hint = did_you_mean(name, names) or f"It can be {', '.join(names)}."
        raise BadRequest(f"usage cannot be put together by {name!r:.80}.", hint=hint)
    return GroupBy(name)


_USER = Parameter(name="user", about="Whose, for scope admin; * is everybody's. Your own if none.")

_SUMS: Final = {
    "calls": whole(),
    "input_tokens": whole("All that was read, from a cache too."),
    "output_tokens": whole("All that was written, reasoning too."),
    "cache_read_tokens": whole(),
    "cache_write_tokens": whole(),
    "reasoning_tokens": whole(),
    "cost_usd": number("Of the calls whose price is known."),
    "unpriced": whole("Calls whose price is not."),
    "estimated": whole("Calls that were counted here, for the provider did not say."),
}
_SHARED: Final = {
    "day": text(format="date"),
    "agent_id": text(),
    "provider": text(),
    "model": text(),
    "session_key": or_null(text()),
    "user_id": text(),
}

SCHEMAS: Final[dict[str, Schema]] = {
    "Usage": document(
        {
            "by": one_of(*(by.value for by in GroupBy)),
            "total": document(_SUMS),
            "usage": listed(document({**_SHARED, **_SUMS}, optional=tuple(_SHARED))),
        }
    ),
    "Budgets": document(
        {
            "budgets": listed(
                document(
                    {
                        "kind": one_of("session", "agent", "user", "daily", "monthly"),
                        "scope": text("Like user:ada, or daily."),
                        "period": or_null(text("A day or a month.")),
                        "unit": one_of("tokens", "usd"),
                        "ceiling": number(),
                        "used": number(),
                        "held": number("By calls on their way."),
                        "left": number(),
                        "resets_at": or_null(time()),
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
        handle=usage,
        parameters=(
            Parameter(
                name="by",
                about="Put together by day, agent, model, session or user.",
                default=GroupBy.DAY.value,
            ),
            Parameter(name="since", about="The first day, as in 2026-11-01, of UTC."),
            Parameter(name="until", about="The last day."),
            _USER,
            Parameter(name="limit", about="How many at most.", bounds=(1, 1000), default=100),
        ),
        responses={200: ResponseSpec("All of it, and in parts.", "Usage")},
        errors=(400, 503),
    ),
    Operation(
        method="GET",
        path="/api/budgets",
        name="showBudgets",
        summary="What is left of the budgets that calls fall under.",
        handle=budgets,
        parameters=(
            _USER,
            Parameter(
                name="limit",
                about="How many sessions, agents and users at most.",
                bounds=(1, 1000),
                default=100,
            ),
        ),
        responses={200: ResponseSpec("The budgets that have a ceiling.", "Budgets")},
        errors=(400, 503),
    ),
)
