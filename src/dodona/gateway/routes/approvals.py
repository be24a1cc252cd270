"""Approvals: tool calls that wait for a decision by the user."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from dodona.core.domain.approvals import Decision
from dodona.core.errors import BadRequest
from dodona.gateway.http.json_schema import (
    Schema,
    array,
    boolean,
    date_time,
    enum,
    integer,
    nullable,
    object_,
    ref,
    request_object,
    response_object,
    string,
)
from dodona.gateway.http.operation import Operation, ResponseSpec
from dodona.gateway.http.parameter import RequestParameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response

MAX_NOTE_LENGTH: Final = 2_000
_MAX_INTEGER: Final = 10**18 - 1


async def list_pending(request: ApiRequest) -> Response:
    """List the pending approvals of the caller."""
    return json_response({"approvals": await request.api.approvals.pending(request.user_id)})


async def decide(request: ApiRequest) -> Response:
    """Approve or deny a tool call."""
    approved, note = _read_decision(await request.json())
    approval = await request.api.approvals.decide(
        request.user_id,
        request.params["run_id"],
        request.params["call"],
        approved=approved,
        note=note,
    )
    return json_response(approval)


def _read_decision(body: dict[str, Any]) -> tuple[bool, str]:
    approved, note = body.get("approved"), body.get("note", "")
    errors = [BadRequest(f"there is no field {n!r:.80}.") for n in body if n not in _FIELDS]
    if not isinstance(approved, bool):
        errors.append(BadRequest("approved must be true or false."))
    if not isinstance(note, str) or len(note) > MAX_NOTE_LENGTH:
        errors.append(
            BadRequest(f"note must be a string of at most {MAX_NOTE_LENGTH:,} characters.")
        )
    if errors:
        raise BadRequest.combine(errors)
    assert isinstance(approved, bool)
    return approved, note


_FIELDS: Final = {
    "approved": boolean("Whether to make the call."),
    "note": string(
        "A note for the model about a denied call.", maxLength=MAX_NOTE_LENGTH, default=""
    ),
}

SCHEMAS: Final[dict[str, Schema]] = {
    "Approval": response_object(
        {
            "run_id": integer(),
            "call": string("The id of the tool call."),
            "tool": string(),
            "arguments": object_("The arguments from the model; long values are shortened."),
            "reason": string("Why the call needs approval."),
            "asked_at": date_time(),
            "expires_at": date_time(),
            "decision": enum(*(each.value for each in Decision)),
            "decided_at": nullable(date_time()),
            "decided_by": nullable(string()),
            "note": string(),
        }
    ),
    "ApprovalList": response_object({"approvals": array(ref("Approval"))}),
    "ApprovalDecision": request_object(_FIELDS, required=("approved",)),
}

OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/approvals",
        operation_id="listApprovals",
        summary="List the tool calls that need your approval, oldest first.",
        handler=list_pending,
        responses={200: ResponseSpec("The pending approvals.", "ApprovalList")},
        error_statuses=(400, 503),
    ),
    Operation(
        method="POST",
        path="/api/runs/{run_id}/approvals/{call}",
        operation_id="decideApproval",
        summary="Approve or deny a tool call.",
        handler=decide,
        parameters=(
            RequestParameter(
                name="run_id",
                description="The id of the run.",
                location="path",
                bounds=(0, _MAX_INTEGER),
            ),
            RequestParameter(name="call", description="The id of the tool call.", location="path"),
        ),
        body_schema="ApprovalDecision",
        responses={200: ResponseSpec("The approval with the decision.", "Approval")},
        error_statuses=(400, 404, 408, 409, 413, 415, 503),
    ),
)
