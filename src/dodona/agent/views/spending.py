"""Views of model usage, cost and remaining budgets."""

from __future__ import annotations

from collections.abc import Mapping
from time import time
from typing import Any, Final

from dodona.core.domain.budgets import Budget, BudgetLimit, kind_of, resets_at
from dodona.core.domain.usage import GroupBy, UsageQuery, UsageTotals
from dodona.metering import Ceilings, Meter
from dodona.store import Store

# The JSON fields of a group's name.
_GROUP_FIELDS: Final[Mapping[GroupBy, tuple[str, ...]]] = {
    GroupBy.DAY: ("day",),
    GroupBy.AGENT: ("agent_id",),
    GroupBy.MODEL: ("provider", "model"),
    GroupBy.SESSION: ("session_key",),
    GroupBy.USER: ("user_id",),
}


class SpendingViews:
    """Usage of one user, or of all users (None). The caller checks the permission."""

    def __init__(self, storage: Store, limits: Meter | Ceilings) -> None:
        self._usage = storage.usage
        self._budgets = storage.budgets
        self._limits = limits

    async def usage(self, period: UsageQuery, by: GroupBy, *, max_rows: int) -> dict[str, Any]:
        """Return the total usage, and the usage per group."""
        groups = await self._usage.totals_by(period, by, limit=max_rows)
        return {
            "by": by.value,
            "total": _totals_json(await self._usage.total(period)),
            "usage": [
                {**dict(zip(_GROUP_FIELDS[by], each.name, strict=True)), **_totals_json(each)}
                for each in groups
            ],
        }

    async def budgets(self, user_id: str | None, *, max_rows: int) -> list[dict[str, Any]]:
        """List the budgets that apply to a user. Day, month and agent budgets are global."""
        documents: list[dict[str, Any]] = []
        for limit in self._limits.limits(time()):
            budgets = await self._budgets.status(limit, user_id=user_id, max_rows=max_rows)
            documents += [_budget_json(budget, limit) for budget in budgets]
        return documents


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
    """The JSON form of a budget, with the configured ceiling, not that of the last call."""
    number = limit.unit.to_number
    reset = resets_at(limit.period)
    return {
        "kind": kind_of(budget.scope),
        "scope": budget.scope,
        "period": limit.period if reset else None,
        "unit": limit.unit.value,
        "ceiling": number(limit.ceiling),
        "used": number(budget.used),
        "held": number(budget.reserved),
        "left": number(max(0, limit.ceiling - budget.used - budget.reserved)),
        "resets_at": reset.strftime("%Y-%m-%dT%H:%M:%SZ") if reset else None,
    }
