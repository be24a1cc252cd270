"""API tokens: which user a client acts as, and with which scopes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

SCOPES: Final = {
    "read": "read your own data",
    "chat": "ask questions and change your own data; includes read",
    "channel": "act for other peers and accounts, as a chat channel adapter does",
    "admin": "see the usage of all users, set budgets, read the audit log and the metrics",
}

TOKEN_PREFIX: Final = "dod_"
# The complete token: 256 random bits in URL-safe base64.
TOKEN_PATTERN: Final = re.compile(TOKEN_PREFIX + "[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class ApiToken:
    """The record of a token; its text is known only to its holder."""

    id: int
    user_id: str
    label: str
    scopes: frozenset[str]
    created_at: float
    expires_at: float | None = None
    last_used_at: float | None = None
    revoked_at: float | None = None

    def is_active(self, now: float) -> bool:
        """Whether the token is neither revoked nor expired."""
        is_expired = self.expires_at is not None and self.expires_at <= now
        return self.revoked_at is None and not is_expired
