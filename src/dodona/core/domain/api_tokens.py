"""Tokens: who may come in from elsewhere, as which user, to do what."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

SCOPES: Final = {
    "read": "look at one's own things",
    "chat": "ask, and change one's own things; includes read",
    "channel": "speak for other peers and accounts, as the adapter of a chat channel does",
    "admin": "see all users' usage, set budgets, read the audit log and the metrics",
}

TOKEN_PREFIX: Final = "dod_"
# The whole of one: 256 bits, as URLs spell them.
TOKEN_PATTERN: Final = re.compile(TOKEN_PREFIX + "[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class ApiToken:
    """What is known of a token; its text is known to its holder alone."""

    id: int
    user_id: str
    label: str
    scopes: frozenset[str]
    created_at: float
    expires_at: float | None = None
    last_used_at: float | None = None
    revoked_at: float | None = None

    def is_active(self, now: float) -> bool:
        is_past = self.expires_at is not None and self.expires_at <= now
        return self.revoked_at is None and not is_past


class ApiTokens(Protocol):
    """The tokens of all users."""

    async def find(self, digest: str) -> ApiToken | None:
        """The token whose text has this SHA-256, be it active or not."""
        ...

    async def record_use(self, ids: Sequence[int], used_at: float) -> None:
        """Remember when tokens were last used; that need not outlive the power."""
        ...
