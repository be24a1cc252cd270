"""The audit log, for those who look after the gateway."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from dodona.agent.views.documents import audit_json
from dodona.core.domain.audit import AUDIT_KINDS, AUDIT_OUTCOMES
from dodona.core.errors import BadRequest, did_you_mean
from dodona.gateway.http.json_schema import (
    Schema,
    array,
    date_time,
    enum,
    integer,
    nullable,
    ref,
    response_object,
    string,
)
from dodona.gateway.http.operation import Operation, ResponseSpec
from dodona.gateway.http.parameter import RequestParameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response

_MAX_INTEGER: Final = 10**18 - 1


async def list_entries(request: ApiRequest) -> Response:
    """The newest first; `next` is what to give as `before` to see those that are older."""
    kind, limit = request.params["kind"], request.params["limit"]
    if kind is not None and kind not in AUDIT_KINDS:
        near = did_you_mean(kind, AUDIT_KINDS) or f"Kinds are {', '.join(AUDIT_KINDS)}."
        raise BadRequest(f"there is no kind {kind!r:.80}.", hint=near)
    found = (
        []
        if request.state.services.audit is None
        else await request.state.services.audit.page(
            since=float(request.params["since"]),
            kind=kind or "",
            before=request.params["before"],
            limit=limit,
        )
    )
    last = found[-1].id if len(found) == limit else None
    return json_response({"entries": [audit_json(each) for each in found], "next": last})


SCHEMAS: Final[dict[str, Schema]] = {
    "AuditEntry": response_object(
        {
            "id": integer(),
            "at": date_time(),
            "kind": enum(*AUDIT_KINDS),
            "outcome": enum(*AUDIT_OUTCOMES),
            "user": string("Whose token it was; empty if nobody knows."),
            "token": nullable(integer("The id of the token.")),
            "address": string("Where it came from; empty for what was done on this machine."),
            "what": string(),
            "more": integer("How many alike were left out before this one."),
        }
    ),
    "AuditPage": response_object(
        {
            "entries": array(ref("AuditEntry")),
            "next": nullable(integer("Give it as `before` for older ones.")),
        }
    ),
}

OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/audit",
        name="readAudit",
        summary="Who was turned away, and who changed what, the newest first.",
        handle=list_entries,
        parameters=(
            RequestParameter(
                name="since",
                description="From then on, in seconds since 1970.",
                bounds=(0, _MAX_INTEGER),
                default=0,
            ),
            RequestParameter(name="kind", description=f"Only these: {', '.join(AUDIT_KINDS)}."),
            RequestParameter(
                name="before", description="Only those with a smaller id.", bounds=(1, _MAX_INTEGER)
            ),
            RequestParameter(
                name="limit", description="How many at most.", bounds=(1, 1_000), default=100
            ),
        ),
        responses={200: ResponseSpec("A page of the log.", "AuditPage")},
        errors=(400, 503),
        scope="admin",
    ),
)
