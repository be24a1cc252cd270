"""What calls of models cost: planned before, budgeted by line, recorded after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from dodona.core.ports.model import Usage

T = TypeVar("T")
# A function of a transaction, which only the store looks into.
Operation: TypeAlias = Callable[[Any], T]

NANOS_PER_USD: Final = 1_000_000_000  # of a dollar
ALL_TIME: Final = "-"  # as a period: from the beginning, and for ever


class BudgetUnit(Enum):
    TOKENS = "tokens"
    USD = "usd"  # counted in billionths

    def format(self, amount: int) -> str:
        return (
            f"{amount:,} tokens" if self is BudgetUnit.TOKENS else f"${amount / NANOS_PER_USD:,.4f}"
        )

    def to_number(self, amount: int) -> int | float:
        """In tokens or in dollars."""
        return amount if self is BudgetUnit.TOKENS else amount / NANOS_PER_USD


@dataclass(frozen=True, slots=True)
class BudgetLine:
    """One budget that a call falls under, and how much of it the call may use.

    The period is part of the name (`2026-11-16`, `2026-11`, `-`), so nothing is ever reset.
    """

    scope: str
    period: str
    unit: BudgetUnit
    amount: int
    ceiling: int


@dataclass(frozen=True, slots=True)
class BudgetLimit:
    """A ceiling as it is set: of each session, agent or user, or of this day or month."""

    kind: str
    period: str
    unit: BudgetUnit
    ceiling: int


@dataclass(frozen=True, slots=True)
class Budget:
    """What was used of a budget, and what calls on their way may still use."""

    scope: str
    period: str
    unit: BudgetUnit
    ceiling: int  # when it was last asked for
    used: int
    reserved: int


@dataclass(frozen=True, slots=True)
class Reservation:
    """Money put aside for one call."""

    id: int


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A call as it was billed. `cost_estimate_usd` is None when the price is unknown."""

    user_id: str
    agent_id: str
    provider: str
    model: str
    input_tokens: int
    output_tokens: int
    cost_estimate_usd: float | None
    session_key: str | None = None
    run_id: int | None = None
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    estimated: bool = False
    timestamp: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlan:
    """A call that is about to be made: by whom, of which model, how large at most.

    Outside a run it has an `owner`, the process that makes it: what it put aside is settled when
    that has died.

    `at` is in seconds since 1970, and decides the day and the month that pay. `fallbacks` are the
    others that may answer instead, each a provider and its model.
    """

    user_id: str
    agent_id: str
    session_key: str | None
    run_id: int | None
    attempt: int
    step_key: str
    provider: str
    model: str
    input_tokens: int  # estimated
    max_output_tokens: int
    at: float
    fallbacks: tuple[tuple[str, str], ...] = ()
    owner: str | None = None

    @property
    def models(self) -> tuple[tuple[str, str], ...]:
        """All that may answer."""
        return ((self.provider, self.model), *self.fallbacks)


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """What one model used."""

    provider: str
    model: str
    usage: Usage


class Budgets(Protocol):
    """What stands in the books."""

    async def status(
        self, limit: BudgetLimit, *, user_id: str | None, max_rows: int = 100
    ) -> list[Budget]:
        """The budgets under a limit, those that have used most first; a user's own, or all."""
        ...


class LimitSource(Protocol):
    def limits(self, at: float) -> tuple[BudgetLimit, ...]:
        """What calls are held to at a time."""
        ...


class Meter(LimitSource, Protocol):
    """Every call of a model passes it: reserved before, settled and recorded after."""

    def reserve(self, plan: CallPlan) -> Operation[Reservation]:
        """Put aside the most that a call can use, or raise BudgetExceeded."""
        ...

    def settle(
        self, reservation: Reservation, plan: CallPlan, usages: Sequence[ModelUsage]
    ) -> Operation[bool]:
        """Count what was used instead of what was put aside, and record it."""
        ...


def has_no_usage(usage: Usage) -> bool:
    """Did the provider give no account?"""
    return not (usage.input_tokens or usage.output_tokens or usage.cost_usd is not None)


def period_bounds(period: str) -> tuple[datetime, datetime] | None:
    """When a period begins and when the next one does; None for what never begins anew."""
    if period == ALL_TIME:
        return None
    year, month, *day = map(int, period.split("-"))
    first = date(year, month, day[0] if day else 1)
    after = first + timedelta(days=1 if day else 32)
    begins, ends = (
        datetime(each.year, each.month, each.day, tzinfo=UTC)
        for each in (first, after if day else after.replace(day=1))
    )
    return begins, ends


def resets_at(period: str) -> datetime | None:
    """When the next period begins."""
    bounds = period_bounds(period)
    return None if bounds is None else bounds[1]


def kind_of(scope: str) -> str:
    """`user` of `user:ada`, as the config names it."""
    return scope.partition(":")[0]
