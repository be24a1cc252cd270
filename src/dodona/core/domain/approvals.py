"""Approvals: tool calls that a person must approve before they run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Decision(Enum):
    """The state of an approval; every state except PENDING is final."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewApproval:
    """`call_id` is unique within its run; `arguments` are shown to the person who decides."""

    run_id: int
    call_id: str
    tool: str
    arguments: Mapping[str, Any]
    reason: str
    expires_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval(NewApproval):
    """A stored request and its decision; `decided_at` and `decided_by` are None while pending."""

    asked_at: float
    decision: Decision
    decided_at: float | None
    decided_by: str | None
    note: str = ""  # the person's comment
