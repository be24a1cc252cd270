"""Approvals: calls of tools that wait for a person."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from dodona.core.domain.approvals import Decision
from dodona.core.errors import BadRequest
from dodona.gateway.http.json_schema import (
    Schema,
    document,
    listed,
    mapped,
    named,
    one_of,
    or_null,
    request,
    text,
    time,
    whole,
    yes_or_no,
)
from dodona.gateway.http.operation import Operation, ResponseSpec
from dodona.gateway.http.parameter import Parameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response

LONGEST_NOTE: Final = 2_000
_MOST: Final = 10**18 - 1


async def pending(visit: ApiRequest) -> Response:
    return json_response({"approvals": await visit.agency.approvals.pending(visit.user_id)})


async def decide(visit: ApiRequest) -> Response:
    approved, note = _decision(await visit.json())
    decided = await visit.agency.approvals.decide(
        visit.user_id, visit.values["run_id"], visit.values["call"], approved=approved, note=note
    )
    return json_response(decided)


def _decision(asked: dict[str, Any]) -> tuple[bool, str]:
    approved, note = asked.get("approved"), asked.get("note", "")
    wrong = [BadRequest(f"there is no field {n!r:.80}.") for n in asked if n not in _FIELDS]
    if not isinstance(approved, bool):
        wrong.append(BadRequest("approved must be true or false."))
    if not isinstance(note, str) or len(note) > LONGEST_NOTE:
        wrong.append(BadRequest(f"note must be a text of at most {LONGEST_NOTE:,} characters."))
    if wrong:
        raise BadRequest.gather(wrong)
    assert isinstance(approved, bool)
    return approved, note


_FIELDS: Final = {
    "approved": yes_or_no(),
    "note": text("What the model is told of a refusal.", maxLength=LONGEST_NOTE, default=""),
}

SCHEMAS: Final[dict[str, Schema]] = {
    "Approval": document(
        {
            "run_id": whole(),
            "call": text("The id of the call."),
            "tool": text(),
            "arguments": mapped("As the model gave them; long ones are cut."),
            "reason": text("Why a person is asked."),
            "asked_at": time(),
            "expires_at": time(),
            "decision": one_of(*(each.value for each in Decision)),
            "decided_at": or_null(time()),
            "decided_by": or_null(text()),
            "note": text(),
        }
    ),
    "ApprovalList": document({"approvals": listed(named("Approval"))}),
    "ApprovalDecision": request(_FIELDS, required=("approved",)),
}

OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/approvals",
        name="listApprovals",
        summary="The calls that wait for you, the oldest first.",
        handle=pending,
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
            Parameter(name="run_id", about="Which run.", place="path", bounds=(0, _MOST)),
            Parameter(name="call", about="The id of the call.", place="path"),
        ),
        body="ApprovalDecision",
        responses={200: ResponseSpec("What was decided.", "Approval")},
        errors=(400, 404, 408, 409, 413, 415, 503),
    ),
)
