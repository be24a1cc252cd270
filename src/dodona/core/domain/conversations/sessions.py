"""Sessions: who talks to which agent through which channel, and in which conversation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import quote, unquote

from dodona.core.domain.budgets import Operation

DEFAULT_PEER: Final = "main"
MAX_KEY_LENGTH: Final = 512  # PostgreSQL's indexes take no more than 2,704 bytes


def session_key(agent_id: str, channel: str, account: str, peer: str | None = None) -> str:
    """`agent:channel:account:peer`; a colon within a part is escaped, so no two keys are alike."""
    return ":".join(_escape(part) for part in (agent_id, channel, account, peer or DEFAULT_PEER))


def parse_session_key(key: str) -> tuple[str, str, str, str]:
    """The agent, the channel, the account and the peer of a key."""
    agent_id, channel, account, peer = (unquote(part) for part in key.split(":"))
    return agent_id, channel, account, peer


def _escape(part: str) -> str:
    return quote(part, safe="!$&'()*+,;=@/?#[] ~-._", encoding="utf-8", errors="surrogatepass")


@dataclass(frozen=True, slots=True)
class Session:
    """Its conversation is None once that was deleted."""

    key: str
    user_id: str
    agent_id: str
    conversation_id: int | None
    message_count: int
    input_tokens: int
    output_tokens: int
    created_at: float
    updated_at: float


class Sessions(Protocol):
    """Every call says whose: another's session is not found."""

    async def get(self, user_id: str, key: str) -> Session: ...

    async def list(self, user_id: str, *, limit: int = 50, skip: int = 0) -> list[Session]:
        """The latest first."""
        ...

    async def clear(self, user_id: str, key: str) -> Session:
        """Go on in a new conversation. The old one stays, and so do counts."""
        ...

    def add_counts(
        self, user_id: str, key: str, *, messages: int, input_tokens: int, output_tokens: int
    ) -> Operation[Any]:
        """Add up what a run said and used, in a transaction of the caller's."""
        ...
