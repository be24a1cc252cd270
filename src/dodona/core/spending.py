"""What calls of models cost: planned before, budgeted by line, recorded after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from dodona.core.model import Done, Usage

T = TypeVar("T")
# A function of a transaction, which only the store looks into.
Operation: TypeAlias = Callable[[Any], T]

NANOS: Final = 1_000_000_000  # of a dollar
TOTAL: Final = "-"  # as a period: from the beginning, and for ever


class Unit(Enum):
    TOKENS = "tokens"
    USD = "usd"  # counted in billionths

    def told(self, amount: int) -> str:
        return f"{amount:,} tokens" if self is Unit.TOKENS else f"${amount / NANOS:,.4f}"


@dataclass(frozen=True, slots=True)
class Line:
    """One budget that a call falls under, and how much of it the call may use.

    The period is part of the name (`2026-11-16`, `2026-11`, `-`), so nothing is ever reset.
    """

    scope: str
    period: str
    unit: Unit
    amount: int
    ceiling: int


@dataclass(frozen=True, slots=True)
class Hold:
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
class Used:
    """What one model used. `estimated`: it was counted here, for the provider did not say."""

    provider: str
    model: str
    usage: Usage
    estimated: bool = False


class Meter(Protocol):
    """Every call of a model passes it: reserved before, settled and recorded after."""

    def reserve(self, plan: CallPlan) -> Operation[Hold]:
        """Put aside the most that a call can use, or raise BudgetExceeded."""
        ...

    def settle(self, hold: Hold, plan: CallPlan, used: Sequence[Used]) -> Operation[bool]:
        """Count what was used instead of what was put aside, and record it."""
        ...


def used_by(done: Done) -> tuple[Used, ...]:
    """What an answer used, after the attempts before it that used something."""
    attempts = [Used(each.provider, each.model, each.usage) for each in done.attempts]
    billed = [each for each in attempts if not is_silent(each.usage)]
    return (*billed, Used(done.provider, done.model, done.usage))


def is_silent(usage: Usage) -> bool:
    """Did the provider give no account?"""
    return not (usage.input_tokens or usage.output_tokens or usage.cost_usd is not None)
