"""Spending: what calls came to, and what is left of the budgets."""

from __future__ import annotations

from collections.abc import Mapping
from time import time
from typing import Any, Final

from dodona.core.domain.budgets import Budget, BudgetLimit, LimitSource, kind_of, resets_at
from dodona.core.domain.usage import GroupBy, UsageQuery, UsageTotals
from dodona.store import Store

# What the parts of a name are called.
_GROUP_FIELDS: Final[Mapping[GroupBy, tuple[str, ...]]] = {
    GroupBy.DAY: ("day",),
    GroupBy.AGENT: ("agent_id",),
    GroupBy.MODEL: ("provider", "model"),
    GroupBy.SESSION: ("session_key",),
    GroupBy.USER: ("user_id",),
}


class SpendingViews:
    """For one user, or (None) for all of them: whoever asks must be allowed to."""

    def __init__(self, storage: Store, limits: LimitSource) -> None:
        self._usage = storage.usage
        self._budgets = storage.budgets
        self._limits = limits

    async def usage(self, period: UsageQuery, by: GroupBy, *, max_rows: int) -> dict[str, Any]:
        """All of it, and by what it is put together."""
        grouped = await self._usage.totals_by(period, by, limit=max_rows)
        return {
            "by": by.value,
            "total": _totals_json(await self._usage.total(period)),
            "usage": [
                {**dict(zip(_GROUP_FIELDS[by], each.name, strict=True)), **_totals_json(each)}
                for each in grouped
            ],
        }

    async def budgets(self, user_id: str | None, *, max_rows: int) -> list[dict[str, Any]]:
        """Those that a user's calls fall under. A day, a month and an agent are everybody's."""
        found: list[dict[str, Any]] = []
        for limit in self._limits.limits(time()):
            standing = await self._budgets.status(limit, user_id=user_id, max_rows=max_rows)
            found += [_budget_json(budget, limit) for budget in standing]
        return found


def _totals_json(totals: UsageTotals) -> dict[str, Any]:
    return {
        "calls": totals.calls,
        "input_tokens": totals.input_tokens,
        "output_tokens": totals.output_tokens,
        "cache_read_tokens": totals.cache_read_tokens,
        "cache_write_tokens": totals.cache_write_tokens,
        "reasoning_tokens": totals.reasoning_tokens,
        "cost_usd": round(totals.cost_usd, 9),
        "unpriced": totals.unpriced_calls,
        "estimated": totals.estimated_calls,
    }


def _budget_json(budget: Budget, limit: BudgetLimit) -> dict[str, Any]:
    """The ceiling is the one that is set now, not the one at the last call."""
    number = limit.unit.to_number
    again = resets_at(limit.period)
    return {
        "kind": kind_of(budget.scope),
        "scope": budget.scope,
        "period": limit.period if again else None,
        "unit": limit.unit.value,
        "ceiling": number(limit.ceiling),
        "used": number(budget.used),
        "held": number(budget.reserved),
        "left": number(max(0, limit.ceiling - budget.used - budget.reserved)),
        "resets_at": again.strftime("%Y-%m-%dT%H:%M:%SZ") if again else None,
    }
