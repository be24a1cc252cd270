"""Spending: what calls came to, and what is left of the budgets."""

from __future__ import annotations

from collections.abc import Mapping
from time import time
from typing import Any, Final

from dodona.core.domain.budgets import Budget, Limit, Limits, kind_of, resets_at
from dodona.core.domain.usage import GroupBy, Period, UsageTotals
from dodona.store import Store

# What the parts of a name are called.
_NAMES: Final[Mapping[GroupBy, tuple[str, ...]]] = {
    GroupBy.DAY: ("day",),
    GroupBy.AGENT: ("agent_id",),
    GroupBy.MODEL: ("provider", "model"),
    GroupBy.SESSION: ("session_key",),
    GroupBy.USER: ("user_id",),
}


class SpendingViews:
    """For one user, or (None) for all of them: whoever asks must be allowed to."""

    def __init__(self, storage: Store, limits: Limits) -> None:
        self._usage = storage.usage
        self._budgets = storage.budgets
        self._limits = limits

    async def usage(self, span: Period, by: GroupBy, *, most: int) -> dict[str, Any]:
        """All of it, and by what it is put together."""
        grouped = await self._usage.grouped(span, by, most=most)
        return {
            "by": by.value,
            "total": _sums(await self._usage.total(span)),
            "usage": [
                {**dict(zip(_NAMES[by], each.name, strict=True)), **_sums(each)} for each in grouped
            ],
        }

    async def budgets(self, user_id: str | None, *, most: int) -> list[dict[str, Any]]:
        """Those that a user's calls fall under. A day, a month and an agent are everybody's."""
        found: list[dict[str, Any]] = []
        for limit in self._limits.limits(time()):
            standing = await self._budgets.status(limit, user_id=user_id, most=most)
            found += [_status(budget, limit) for budget in standing]
        return found


def _sums(spent: UsageTotals) -> dict[str, Any]:
    return {
        "calls": spent.calls,
        "input_tokens": spent.input_tokens,
        "output_tokens": spent.output_tokens,
        "cache_read_tokens": spent.cache_read_tokens,
        "cache_write_tokens": spent.cache_write_tokens,
        "reasoning_tokens": spent.reasoning_tokens,
        "cost_usd": round(spent.cost_usd, 9),
        "unpriced": spent.unpriced,
        "estimated": spent.estimated,
    }


def _status(budget: Budget, limit: Limit) -> dict[str, Any]:
    """The ceiling is the one that is set now, not the one at the last call."""
    number = limit.unit.number
    again = resets_at(limit.period)
    return {
        "kind": kind_of(budget.scope),
        "scope": budget.scope,
        "period": limit.period if again else None,
        "unit": limit.unit.value,
        "ceiling": number(limit.ceiling),
        "used": number(budget.used),
        "held": number(budget.held),
        "left": number(max(0, limit.ceiling - budget.used - budget.held)),
        "resets_at": again.strftime("%Y-%m-%dT%H:%M:%SZ") if again else None,
    }
