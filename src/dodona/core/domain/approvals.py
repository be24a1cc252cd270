"""The port of approvals: calls of tools that a person must allow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol


class Decision(Enum):
    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewApproval:
    """`call_id` is unique within its run; `arguments` are shown to whoever decides."""

    run_id: int
    call_id: str
    tool: str
    arguments: Mapping[str, Any]
    reason: str
    expires_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval(NewApproval):
    asked_at: float
    decision: Decision
    decided_at: float | None
    decided_by: str | None
    note: str = ""  # what the person said to it


class Approvals(Protocol):
    """Another user's runs are not found."""

    async def request(self, user_id: str, approval: NewApproval) -> Approval:
        """Ask, once for each call: asked again it is the same, with what was decided meanwhile."""
        ...

    async def get(self, user_id: str, run_id: int, call_id: str) -> Approval: ...

    async def decide(
        self,
        user_id: str,
        run_id: int,
        call_id: str,
        *,
        decision: Decision,
        by: str,
        note: str = "",
    ) -> Approval:
        """Decide, once. Conflict when it is decided otherwise already, or the run has ended."""
        ...

    async def pending(self, user_id: str) -> list[Approval]:
        """What waits for a decision, of runs that have not ended, the oldest first."""
        ...
