"""Approvals: calls of tools that wait for a person."""

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
    return json_response({"approvals": await request.api.approvals.pending(request.user_id)})


async def decide(request: ApiRequest) -> Response:
    approved, note = _read_decision(await request.json())
    decided = await request.api.approvals.decide(
        request.user_id,
        request.params["run_id"],
        request.params["call"],
        approved=approved,
        note=note,
    )
    return json_response(decided)


def _read_decision(body: dict[str, Any]) -> tuple[bool, str]:
    approved, note = body.get("approved"), body.get("note", "")
    wrong = [BadRequest(f"there is no field {n!r:.80}.") for n in body if n not in _FIELDS]
    if not isinstance(approved, bool):
        wrong.append(BadRequest("approved must be true or false."))
    if not isinstance(note, str) or len(note) > MAX_NOTE_LENGTH:
        wrong.append(BadRequest(f"note must be a text of at most {MAX_NOTE_LENGTH:,} characters."))
    if wrong:
        raise BadRequest.combine(wrong)
    assert isinstance(approved, bool)
    return approved, note


_FIELDS: Final = {
    "approved": boolean(),
    "note": string("What the model is told of a refusal.", maxLength=MAX_NOTE_LENGTH, default=""),
}

SCHEMAS: Final[dict[str, Schema]] = {
    "Approval": response_object(
        {
            "run_id": integer(),
            "call": string("The id of the call."),
            "tool": string(),
            "arguments": object_("As the model gave them; long ones are cut."),
            "reason": string("Why a person is asked."),
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
        name="listApprovals",
        summary="The calls that wait for you, the oldest first.",
        handle=list_pending,
        responses={200: ResponseSpec("All of them.", "ApprovalList")},
        errors=(400, 503),
    ),
    Operation(
        method="POST",
        path="/api/runs/{run_id}/approvals/{call}",
        name="decideApproval",
        summary="Allow a call, or refuse it.",
        handle=decide,
        parameters=(
            RequestParameter(
                name="run_id", description="Which run.", location="path", bounds=(0, _MAX_INTEGER)
            ),
            RequestParameter(name="call", description="The id of the call.", location="path"),
        ),
        body="ApprovalDecision",
        responses={200: ResponseSpec("What was decided.", "Approval")},
        errors=(400, 404, 408, 409, 413, 415, 503),
    ),
)
