"""Approvals: tool calls that wait for a decision by the user."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from dodona.core.domain.approvals import Approval
from dodona.core.json_document import JsonDocument, RequestDocument
from dodona.gateway.http.operation import Routes
from dodona.gateway.http.parameter import RunId, text
from dodona.gateway.http.request import ApiRequest

MAX_NOTE_LENGTH: Final = 2_000

routes = Routes()


class ApprovalList(JsonDocument):
    """The pending approvals, oldest first."""

    approvals: list[Approval]


class ApprovalDecision(RequestDocument):
    """A decision about a tool call."""

    approved: Annotated[bool, Meta(description="Whether to make the call.")]
    note: Annotated[
        str,
        Meta(max_length=MAX_NOTE_LENGTH, description="A note for the model about a denied call."),
    ] = ""


@routes.get("/api/approvals")
async def list_approvals(request: ApiRequest) -> ApprovalList:
    """List the tool calls that need your approval, oldest first."""
    return ApprovalList(await request.api.approvals.pending(request.user_id))


@routes.post("/api/runs/{run_id}/approvals/{call}", errors=(404, 409))
async def decide_approval(
    request: ApiRequest,
    run_id: RunId,
    call: Annotated[str, text("The id of the tool call.")],
    body: ApprovalDecision,
) -> Approval:
    """Approve or deny a tool call."""
    return await request.api.approvals.decide(
        request.user_id, run_id, call, approved=body.approved, note=body.note
    )
