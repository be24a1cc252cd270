"""What calls came to, added up by day, agent, model, session or user."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class By(Enum):
    """What calls are put together by. Days are those of UTC."""

    DAY = "day"
    AGENT = "agent"
    MODEL = "model"
    SESSION = "session"
    USER = "user"


@dataclass(frozen=True, slots=True)
class Spent:
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
    unpriced: int
    estimated: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Whose calls, and when: from `since` on, before `until`; None is everybody's."""

    user_id: str | None
    since: float
    until: float


class UsageLog(Protocol):
    async def total(self, span: Span) -> Spent: ...

    async def grouped(self, span: Span, by: By, *, most: int) -> list[Spent]:
        """Days from the newest on; of others those with most tokens first."""
        ...
