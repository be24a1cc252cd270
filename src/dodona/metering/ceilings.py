"""Ceilings: how much may be spent by a session, an agent, a user, in a day, in a month."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from dodona.core.domain.budgets import (
    ALL_TIME,
    NANOS_PER_USD,
    BudgetLimit,
    BudgetLine,
    BudgetUnit,
    CallPlan,
)
from dodona.core.errors import ConfigError

# Beyond these a ceiling is a slip of the hand, and no database counts that far.
MAX_CEILING_TOKENS: Final = 10**15
MAX_CEILING_USD: Final = 10**9


def _check_ceiling(unit: str, value: int | Decimal | None, maximum: int) -> None:
    if value is None or (Decimal(value).is_finite() and 0 <= value <= maximum):
        return
    raise ConfigError(
        f"a ceiling in {unit} must be from 0 to {maximum:,} (got {value}).",
        hint="Leave it out for no ceiling.",
    )


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The most that may be spent; None is no ceiling, 0 is nothing at all."""

    tokens: int | None = None
    usd: Decimal | None = None

    def __post_init__(self) -> None:
        _check_ceiling("tokens", self.tokens, MAX_CEILING_TOKENS)
        _check_ceiling("usd", self.usd, MAX_CEILING_USD)

    @property
    def nanos(self) -> int | None:
        return None if self.usd is None else int(self.usd * NANOS_PER_USD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """Days and months are those of UTC, over all users; the others count from the beginning."""

    session: Ceiling = Ceiling()
    agent: Ceiling = Ceiling()
    user: Ceiling = Ceiling()
    daily: Ceiling = Ceiling()
    monthly: Ceiling = Ceiling()

    @property
    def has_usd(self) -> bool:
        """Does any of them need to know prices?"""
        return any(getattr(self, field.name).usd is not None for field in fields(self))

    def budget_lines(self, plan: CallPlan, *, tokens: int, nanos: int) -> list[BudgetLine]:
        """The budgets that a call falls under, each with what the call may use of it."""
        wanted = {BudgetUnit.TOKENS: tokens, BudgetUnit.USD: nanos}
        names = {"session": plan.session_key, "agent": plan.agent_id, "user": plan.user_id}
        lines: list[BudgetLine] = []
        for limit in self.limits(plan.at):
            name = names.get(limit.kind, "")
            if name is not None:
                scope = f"{limit.kind}:{name}" if name else limit.kind
                amount = wanted[limit.unit]
                lines.append(BudgetLine(scope, limit.period, limit.unit, amount, limit.ceiling))
        return lines

    def limits(self, at: float) -> tuple[BudgetLimit, ...]:
        """All that are set, with the periods of a time."""
        day = datetime.fromtimestamp(at, UTC).date().isoformat()
        periods = {"daily": day, "monthly": day[:7]}
        return tuple(
            BudgetLimit(field.name, periods.get(field.name, ALL_TIME), unit, ceiling)
            for field in fields(self)
            for unit, ceiling in _amounts(getattr(self, field.name))
            if ceiling is not None
        )


def _amounts(ceiling: Ceiling) -> tuple[tuple[BudgetUnit, int | None], ...]:
    return (BudgetUnit.TOKENS, ceiling.tokens), (BudgetUnit.USD, ceiling.nanos)
