"""The audit log: who was turned away, and who changed what. It only grows, and never tells secrets.

Kinds: `auth` (a token was wrong, or missing), `denied` (a scope was missing), `limit` (too much was
asked for), `budget` (money or tokens were used up), `admin` (something was changed for all).
"""

from __future__ import annotations

from dataclasses import dataclass
from time import time
from typing import Final, Protocol

AUDIT_KINDS: Final = {
    "auth": "A token was wrong or missing.",
    "denied": "A token had not the scope that was needed.",
    "limit": "Somebody asked too often, or for too much at once.",
    "budget": "A budget was used up.",
    "admin": "Something was changed: a token, a budget, a setting.",
}
AUDIT_OUTCOMES: Final = ("refused", "done")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """`what` is one line for people. `more` counts alike ones that were left out before this."""

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
            raise ValueError(f"no entry of an audit log: {self!r:.200}")

    @classmethod
    def for_admin(cls, what: str, *, user_id: str, address: str = "") -> AuditEntry:
        """Something that was changed."""
        return cls(
            kind="admin", what=what, outcome="done", user_id=user_id, address=address, at=time()
        )


class Audit(Protocol):
    def record(self, entry: AuditEntry) -> None:
        """Write it down soon. It never waits and never raises; call it where the loop runs.

        Of many alike from one place only some are kept, and counted: nobody fills the disk.
        """
        ...
