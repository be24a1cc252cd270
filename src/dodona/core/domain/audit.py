"""The audit log: rejected requests and administrative changes. Append-only, without secrets.

Kinds: `auth` (an invalid or missing token), `denied` (a missing scope), `limit` (a rate or size
limit), `budget` (an exhausted budget), `admin` (a change that affects others).
"""

from __future__ import annotations

from dataclasses import dataclass
from time import time
from typing import Final

AUDIT_KINDS: Final = {
    "auth": "The token is missing or invalid.",
    "denied": "The token lacks the required scope.",
    "limit": "A rate limit or size limit was exceeded.",
    "budget": "A budget is exhausted.",
    "admin": "A token, a budget or a setting was changed.",
}
AUDIT_OUTCOMES: Final = ("refused", "done")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """`what` is one line for people. `more` counts similar entries omitted before this one."""

    kind: str
    what: str
    outcome: str = "refused"
    user_id: str = ""
    token_id: int | None = None
    address: str = ""
    more: int = 0
    at: float = 0.0
    id: int = 0

    def __post_init__(self) -> None:
        if self.kind not in AUDIT_KINDS or self.outcome not in AUDIT_OUTCOMES or not self.what:
            raise ValueError(f"invalid audit log entry: {self!r:.200}")

    @classmethod
    def for_admin(cls, what: str, *, user_id: str, address: str = "") -> AuditEntry:
        """Create an entry for an administrative change."""
        return cls(
            kind="admin", what=what, outcome="done", user_id=user_id, address=address, at=time()
        )
