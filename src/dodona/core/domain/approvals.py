"""Approvals: tool calls that a person must approve before they run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

from msgspec import Meta, field

from dodona.core.domain.trust import NO_MARKS, Mark, Marks
from dodona.core.json_document import JsonDocument, Timestamp


class Decision(Enum):
    """The state of an approval; every state except PENDING is final."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewApproval:
    """`call_id` is unique within its run; `arguments` are shown to the person who decides.

    The approval is valid for the call with `arguments_hash` only. `marks` are the untrusted sources
    that the run has read.
    """

    run_id: int
    call_id: str
    tool: str
    arguments: Mapping[str, Any]
    arguments_hash: str
    reason: str
    expires_at: float
    marks: Marks = NO_MARKS


class Approval(JsonDocument, kw_only=True):
    """A request for approval and its decision."""

    run_id: int
    call_id: Annotated[str, Meta(description="The id of the tool call.")] = field(name="call")
    tool: str
    arguments: Annotated[
        Mapping[str, Any],
        Meta(description="The exact arguments from the model; secrets are redacted."),
    ]
    reason: Annotated[str, Meta(description="Why the call needs approval.")]
    marks: Annotated[
        list[Mark],
        Meta(description="Untrusted sources that the run has read and that may have led here."),
    ]
    asked_at: Timestamp
    expires_at: Timestamp
    decision: Decision
    decided_at: Timestamp | None
    decided_by: str | None
    note: Annotated[str, Meta(description="The comment of the person who decided.")] = ""
