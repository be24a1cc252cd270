"""What calls of models cost: planned before, budgeted by line, recorded after."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from dodona.core.model import Usage

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
    """A call that a run is about to make: by whom, of which model, how large at most.

    `at` is in seconds since 1970, and decides the day and the month that pay. `fallbacks` are the
    others that may answer instead, each a provider and its model.
    """

    user_id: str
    agent_id: str
    session_key: str | None
    run_id: int
    attempt: int
    step_key: str
    provider: str
    model: str
    input_tokens: int  # estimated
    max_output_tokens: int
    at: float
    fallbacks: tuple[tuple[str, str], ...] = ()

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
