"""Model usage, summed by day, agent, model, session or user."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Final, Self

from dodona.core.errors import BadRequest

_END_OF_TIME: Final = 1e12  # seconds since 1970: later than any call


class GroupBy(Enum):
    """The grouping of calls. Days are in UTC."""

    DAY = "day"
    AGENT = "agent"
    MODEL = "model"
    SESSION = "session"
    USER = "user"


@dataclass(frozen=True, slots=True)
class UsageTotals:
    """The sum of a group of calls. `name` is the group; a model's name follows its provider.

    `cost_usd` covers the calls whose price is known, `unpriced_calls` counts the others.
    `estimated_calls` are those whose usage the provider did not report.
    """

    name: tuple[str | None, ...]
    calls: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    cost_usd: float
    unpriced_calls: int
    estimated_calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageQuery:
    """Which calls: those of a user (None for all users), from `since` until before `until`."""

    user_id: str | None
    since: float
    until: float

    @classmethod
    def from_days(cls, user_id: str | None, *, since: str | None, until: str | None) -> Self:
        """Query from the start of a day to the end of another, both like 2026-11-16."""
        return cls(
            user_id=user_id,
            since=0.0 if since is None else _parse_midnight("since", since),
            until=_END_OF_TIME if until is None else _parse_midnight("until", until) + 86_400.0,
        )


def _parse_midnight(name: str, day: str) -> float:
    try:
        return datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()
    except ValueError as error:
        raise BadRequest(
            f"{name} must be a day (got {day!r:.80}).", hint="Like 2026-11-16."
        ) from error
