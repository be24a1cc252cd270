"""Views of model usage, cost and remaining budgets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from time import time
from typing import Annotated, Any, Final, cast

from msgspec import UNSET, Meta, UnsetType

from dodona.core.domain.api_tokens import ApiToken
from dodona.core.domain.budgets import (
    Budget,
    BudgetUnit,
    kind_of,
    resets_at,
    starts_at,
)
from dodona.core.domain.usage import GroupBy, UsageQuery, UsageTotals
from dodona.core.json_document import JsonDocument
from dodona.metering import Ceilings, Meter
from dodona.store import Store

# The JSON fields of a group's name.
_GROUP_FIELDS: Final[Mapping[GroupBy, tuple[str, ...]]] = {
    GroupBy.DAY: ("day",),
    GroupBy.AGENT: ("agent_id",),
    GroupBy.MODEL: ("provider", "model"),
    GroupBy.SESSION: ("user_id", "session_key"),
    GroupBy.USER: ("user_id",),
}


class UsageSum(JsonDocument, kw_only=True):
    """The sum of some model calls. In a group, the fields of its name come first."""

    day: Annotated[str, Meta(extra_json_schema={"format": "date"})] | UnsetType = UNSET
    agent_id: str | UnsetType = UNSET
    provider: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    user_id: str | UnsetType = UNSET
    session_key: str | UnsetType | None = UNSET
    calls: int
    input_tokens: Annotated[int, Meta(description="Including tokens read from a cache.")]
    output_tokens: Annotated[int, Meta(description="Including reasoning tokens.")]
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    cost_usd: Annotated[float, Meta(description="Cost of the calls with a known price.")]
    unpriced: Annotated[int, Meta(description="Calls without a known price.")]
    estimated: Annotated[
        int,
        Meta(description="Calls whose tokens were estimated, because the provider reported none."),
    ]


class UsageDocument(JsonDocument):
    """The total and the groups."""

    by: GroupBy
    total: UsageSum
    usage: list[UsageSum]


BUDGET_KINDS: Final = ("session", "agent", "user", "daily", "monthly", "token")


class BudgetDocument(JsonDocument, kw_only=True):
    """A budget with a ceiling."""

    kind: Annotated[str, Meta(extra_json_schema={"enum": [*BUDGET_KINDS]})]
    scope: Annotated[str, Meta(description="Such as user:ada, token:1 or daily.")]
    period: Annotated[str | None, Meta(description="The day or month.")]
    unit: BudgetUnit
    ceiling: float
    used: float
    held: Annotated[float, Meta(description="Reserved by calls in progress.")]
    left: float
    period_start: (
        Annotated[
            str,
            Meta(
                description="The start of the period; null for a budget that never resets.",
                extra_json_schema={"format": "date-time"},
            ),
        ]
        | None
    )
    resets_at: Annotated[str, Meta(extra_json_schema={"format": "date-time"})] | None


class SpendingViews:
    """Usage of one user, or of all users (None). The caller checks the permission."""

    def __init__(self, storage: Store, limits: Meter | Ceilings) -> None:
        self._usage = storage.usage
        self._budgets = storage.budgets
        self._tokens = storage.api_tokens
        self._limits = limits

    async def usage(self, period: UsageQuery, by: GroupBy, *, max_rows: int) -> UsageDocument:
        """Return the total usage, and the usage per group."""
        groups = await self._usage.totals_by(period, by, limit=max_rows)
        return UsageDocument(
            by,
            _sum(await self._usage.total(period)),
            [_sum(each, **dict(zip(_GROUP_FIELDS[by], each.name, strict=True))) for each in groups],
        )

    async def budgets(
        self, user_id: str | None, *, max_rows: int, token: ApiToken | None = None
    ) -> list[BudgetDocument]:
        """List the budgets that apply to a user. Day, month and agent budgets are global.

        With `token`, the request's, its budgets are listed, and not those of the user's others.
        """
        now = time()
        documents: list[BudgetDocument] = []
        for limit in self._limits.limits(now):
            budgets = await self._budgets.status(limit, user_id=user_id, max_rows=max_rows)
            documents += [_budget_document(budget, limit.ceiling) for budget in budgets]
        tokens = await self._tokens_of(user_id, now) if token is None else [token]
        for each in tokens[:max_rows]:
            budgets = await self._budgets.of_token(each, now)
            documents += [_budget_document(budget, budget.ceiling) for budget in budgets]
        return documents

    async def _tokens_of(self, user_id: str | None, now: float) -> list[ApiToken]:
        """Return the active tokens with budgets of their own, of a user or of all users."""
        return [
            token
            for token in await self._tokens.list()
            if token.limits.has_budget and token.is_active(now) and user_id in (None, token.user_id)
        ]


def _sum(totals: UsageTotals, **name: str | None) -> UsageSum:
    return UsageSum(
        **cast("dict[str, Any]", name),
        calls=totals.calls,
        input_tokens=totals.input_tokens,
        output_tokens=totals.output_tokens,
        cache_read_tokens=totals.cache_read_tokens,
        cache_write_tokens=totals.cache_write_tokens,
        reasoning_tokens=totals.reasoning_tokens,
        cost_usd=round(totals.cost_usd, 9),
        unpriced=totals.unpriced_calls,
        estimated=totals.estimated_calls,
    )


def _budget_document(budget: Budget, ceiling: int) -> BudgetDocument:
    """The document of a budget, with the current ceiling, not that of the last call."""
    number = budget.unit.to_number
    start, reset = starts_at(budget.period), resets_at(budget.period)
    return BudgetDocument(
        kind=kind_of(budget.scope),
        scope=budget.scope,
        period=budget.period if reset else None,
        unit=budget.unit,
        ceiling=number(ceiling),
        used=number(budget.used),
        held=number(budget.reserved),
        left=number(max(0, ceiling - budget.used - budget.reserved)),
        period_start=start and _format_time(start),
        resets_at=reset and _format_time(reset),
    )


def _format_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
