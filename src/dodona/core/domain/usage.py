"""What calls came to, added up by day, agent, model, session or user."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Final, Protocol, Self

from dodona.core.errors import BadRequest

_END_OF_TIME: Final = 1e12  # seconds since 1970: nobody has called anything by then


class GroupBy(Enum):
    """What calls are put together by. Days are those of UTC."""

    DAY = "day"
    AGENT = "agent"
    MODEL = "model"
    SESSION = "session"
    USER = "user"


@dataclass(frozen=True, slots=True)
class UsageTotals:
    """Some calls together. `name` is what they share; of a model, its provider comes first.

    `cost_usd` is that of the calls whose price is known; `unpriced` are the others. What was
    counted here, for the provider did not say, is `estimated`.
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
    """Whose calls, and when: from `since` on, before `until`; None is everybody's."""

    user_id: str | None
    since: float
    until: float

    @classmethod
    def from_days(cls, user_id: str | None, *, since: str | None, until: str | None) -> Self:
        """From the beginning of a day to the end of another, both as in 2026-11-16."""
        return cls(
            user_id=user_id,
            since=0.0 if since is None else _parse_midnight("since", since),
            until=_END_OF_TIME if until is None else _parse_midnight("until", until) + 86_400.0,
        )


class UsageLog(Protocol):
    async def total(self, query: UsageQuery) -> UsageTotals: ...

    async def totals_by(self, query: UsageQuery, by: GroupBy, *, limit: int) -> list[UsageTotals]:
        """Days from the newest on; of others those with most tokens first."""
        ...


def _parse_midnight(name: str, day: str) -> float:
    try:
        return datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()
    except ValueError as error:
        raise BadRequest(
            f"{name} must be a day (got {day!r:.80}).", hint="Like 2026-11-16."
        ) from error
