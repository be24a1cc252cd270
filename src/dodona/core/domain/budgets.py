"""Budgets and the cost of model calls: planned before a call, recorded after it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from typing import Final

from dodona.core.domain.api_tokens import ApiToken, BudgetPeriod
from dodona.core.ports.model import Usage

NANOS_PER_USD: Final = 1_000_000_000
# A larger ceiling is a typo, and would overflow the database column.
MAX_CEILING_TOKENS: Final = 10**15
MAX_CEILING_USD: Final = 10**9
ALL_TIME: Final = "-"  # the period of a budget that never resets


class BudgetUnit(Enum):
    TOKENS = "tokens"
    USD = "usd"  # counted in billionths

    def format(self, amount: int) -> str:
        return (
            f"{amount:,} tokens" if self is BudgetUnit.TOKENS else f"${amount / NANOS_PER_USD:,.4f}"
        )

    def to_number(self, amount: int) -> int | float:
        """Convert an amount to tokens or dollars."""
        return amount if self is BudgetUnit.TOKENS else amount / NANOS_PER_USD


@dataclass(frozen=True, slots=True)
class BudgetLine:
    """A budget that a call counts towards, and the most that the call may use of it.

    The period is part of the key (`2026-11-16`, `2026-11`, `-`), so nothing is ever reset.
    """

    scope: str
    period: str
    unit: BudgetUnit
    amount: int
    ceiling: int


@dataclass(frozen=True, slots=True)
class BudgetLimit:
    """A limit: per session, agent, user or token, or for the current day or month."""

    kind: str
    period: str
    unit: BudgetUnit
    ceiling: int


@dataclass(frozen=True, slots=True)
class Budget:
    """The amount used of a budget, and the amount reserved for calls in progress."""

    scope: str
    period: str
    unit: BudgetUnit
    ceiling: int  # as of the last reservation
    used: int
    reserved: int


@dataclass(frozen=True, slots=True)
class Reservation:
    """Tokens or money reserved for one call."""

    id: int


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A call as billed. `cost_estimate_usd` is None if the price is unknown."""

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
class BillingScope:
    """Who pays for model calls: user, agent, session, and the token of the request if there is one.

    Calls within a run have its `run_id` and `attempt`. Calls outside of runs have an `owner`, the
    process that makes them: their reservations are settled if that process dies.
    """

    user_id: str
    agent_id: str
    session_key: str | None
    run_id: int | None = None
    attempt: int = 0
    owner: str | None = None
    token: ApiToken | None = None

    @property
    def session_name(self) -> str | None:
        """The name of the session in a budget's scope: keys of different users may be equal."""
        return None if self.session_key is None else f"{self.user_id}:{self.session_key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlan:
    """A call that is about to be made: its model and its maximum size. `scope` pays for it.

    `at` is in seconds since 1970 and selects the day and the month that are charged. `fallbacks`
    are the other models that may answer, each as (provider, model).
    """

    scope: BillingScope
    step_key: str
    provider: str
    model: str
    input_tokens: int  # estimated
    max_output_tokens: int
    at: float
    fallbacks: tuple[tuple[str, str], ...] = ()

    @property
    def models(self) -> tuple[tuple[str, str], ...]:
        """All models that may answer, as (provider, model)."""
        return ((self.provider, self.model), *self.fallbacks)


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """The usage of one model."""

    provider: str
    model: str
    usage: Usage


def has_no_usage(usage: Usage) -> bool:
    """Whether the provider reported no usage."""
    return not (usage.input_tokens or usage.output_tokens or usage.cost_usd is not None)


def period_bounds(period: str) -> tuple[datetime, datetime] | None:
    """Return the start of a period and of the next one; None for a period that never resets."""
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


def day_and_month(at: float) -> tuple[str, str]:
    """Return the periods of the day and of the month at a time, in UTC."""
    day = datetime.fromtimestamp(at, UTC).date().isoformat()
    return day, day[:7]


def token_limits(token: ApiToken, at: float) -> Iterator[BudgetLimit]:
    """Yield the limits of a token's own budget, with the period at a time."""
    limits, (day, month) = token.limits, day_and_month(at)
    period = {BudgetPeriod.DAY: day, BudgetPeriod.MONTH: month}.get(limits.period, ALL_TIME)
    if limits.budget_tokens is not None:
        yield BudgetLimit("token", period, BudgetUnit.TOKENS, limits.budget_tokens)
    if limits.budget_nanos is not None:
        yield BudgetLimit("token", period, BudgetUnit.USD, limits.budget_nanos)


def starts_at(period: str) -> datetime | None:
    """Return the start of a period; None for a period that never resets."""
    bounds = period_bounds(period)
    return None if bounds is None else bounds[0]


def resets_at(period: str) -> datetime | None:
    """Return the start of the next period; None for a period that never resets."""
    bounds = period_bounds(period)
    return None if bounds is None else bounds[1]


def kind_of(scope: str) -> str:
    """Return the kind of a scope as in the config: `user` for `user:ada`."""
    return scope.partition(":")[0]
