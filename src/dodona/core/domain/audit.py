"""The audit log: rejected requests and administrative changes. Append-only, without secrets.

Kinds: `auth` (an invalid or missing token), `denied` (a missing scope), `limit` (a rate or size
limit), `budget` (an exhausted budget), `admin` (a change that affects others).
"""

from __future__ import annotations

from time import time
from typing import Annotated, Final, Literal, TypeAlias, get_args

from msgspec import Meta, field

from dodona.core.json_document import JsonDocument, Timestamp

AuditKind: TypeAlias = Literal["auth", "denied", "limit", "budget", "admin"]
AuditOutcome: TypeAlias = Literal["refused", "done"]
AUDIT_KINDS: Final[dict[str, str]] = {
    "auth": "The token is missing or invalid.",
    "denied": "The token lacks the required scope.",
    "limit": "A rate limit or size limit was exceeded.",
    "budget": "A budget is exhausted.",
    "admin": "A token, a budget or a setting was changed.",
}
AUDIT_OUTCOMES: Final[tuple[str, ...]] = get_args(AuditOutcome)


class AuditEntry(JsonDocument, kw_only=True):
    """An entry of the audit log."""

    id: int = 0
    at: Timestamp = field(default_factory=Timestamp)  # 0: not written yet
    kind: AuditKind
    outcome: AuditOutcome = "refused"
    user_id: Annotated[str, Meta(description="The user of the token; empty if unknown.")] = field(
        default="", name="user"
    )
    token_id: Annotated[int | None, Meta(description="The id of the token.")] = field(
        default=None, name="token"
    )
    address: Annotated[str, Meta(description="The client address; empty for local commands.")] = ""
    what: Annotated[str, Meta(description="What happened, in one line.")]
    more: Annotated[int, Meta(description="Number of similar entries omitted before this one.")] = 0

    def __post_init__(self) -> None:
        if self.kind not in AUDIT_KINDS or self.outcome not in AUDIT_OUTCOMES or not self.what:
            raise ValueError(f"invalid audit log entry: {self!r:.200}")

    @classmethod
    def for_admin(cls, what: str, *, user_id: str, address: str = "") -> AuditEntry:
        """Create an entry for an administrative change."""
        return cls(
            kind="admin",
            what=what,
            outcome="done",
            user_id=user_id,
            address=address,
            at=Timestamp(time()),
        )
