"""Sessions: a peer who talks to an agent through a channel, and their conversation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

DEFAULT_PEER: Final = "main"
MAX_KEY_LENGTH: Final = 512  # PostgreSQL limits index entries to 2,704 bytes


def session_key(agent_id: str, channel: str, account: str, peer: str | None = None) -> str:
    """Build `agent:channel:account:peer`; colons within a part are escaped, so keys are unique."""
    return ":".join(_escape(part) for part in (agent_id, channel, account, peer or DEFAULT_PEER))


def parse_session_key(key: str) -> tuple[str, str, str, str]:
    """Split a key into agent, channel, account and peer."""
    agent_id, channel, account, peer = (unquote(part) for part in key.split(":"))
    return agent_id, channel, account, peer


def _escape(part: str) -> str:
    return quote(part, safe="!$&'()*+,;=@/?#[] ~-._", encoding="utf-8", errors="surrogatepass")


@dataclass(frozen=True, slots=True)
class Session:
    """`conversation_id` is None after the conversation is deleted."""

    key: str
    user_id: str
    agent_id: str
    conversation_id: int | None
    message_count: int
    input_tokens: int
    output_tokens: int
    created_at: float
    updated_at: float
