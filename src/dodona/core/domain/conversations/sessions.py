"""Sessions: a peer who talks to an agent through a channel, and their conversation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final
from urllib.parse import quote, unquote

DEFAULT_PEER: Final = "main"
HASH_LENGTH: Final = 32  # hex characters: two secrets with one hash cannot be found
MAX_KEY_LENGTH: Final = 512  # PostgreSQL limits index entries to 2,704 bytes


def session_key(
    agent_id: str,
    channel: str,
    account: str,
    peer: str | None = None,
    *,
    redact: Callable[[str], str] = str,
) -> str:
    """Build `agent:channel:account:peer`; colons within a part are escaped, so keys are unique.

    `redact` removes known secrets. Clients choose the parts, and keys are stored and shown: a part
    with a secret is replaced by its redacted text and a hash, so that keys stay unique.
    """
    parts = (agent_id, channel, account, peer or DEFAULT_PEER)
    return ":".join(_escape(_redact_part(part, redact)) for part in parts)


def _redact_part(part: str, redact: Callable[[str], str]) -> str:
    redacted = redact(part)
    if redacted == part:
        return part
    digest = sha256(part.encode(errors="surrogatepass")).hexdigest()
    return f"{redacted} {digest[:HASH_LENGTH]}"


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
