"""The audit log, for those who look after the gateway."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from dodona.agent.views.documents import audit_json
from dodona.core.domain.audit import KINDS, OUTCOMES
from dodona.core.errors import BadRequest, did_you_mean
from dodona.gateway.http.json_schema import (
    Schema,
    document,
    listed,
    named,
    one_of,
    or_null,
    text,
    time,
    whole,
)
from dodona.gateway.http.operation import Operation, ResponseSpec
from dodona.gateway.http.parameter import Parameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response

_MOST: Final = 10**18 - 1


async def page(visit: ApiRequest) -> Response:
    """The newest first; `next` is what to give as `before` to see those that are older."""
    kind, limit = visit.values["kind"], visit.values["limit"]
    if kind is not None and kind not in KINDS:
        near = did_you_mean(kind, KINDS) or f"Kinds are {', '.join(KINDS)}."
        raise BadRequest(f"there is no kind {kind!r:.80}.", hint=near)
    found = (
        []
        if visit.gate.beside.audit is None
        else await visit.gate.beside.audit.page(
            since=float(visit.values["since"]),
            kind=kind or "",
            before=visit.values["before"],
            limit=limit,
        )
    )
    last = found[-1].id if len(found) == limit else None
    return json_response({"entries": [audit_json(each) for each in found], "next": last})


SCHEMAS: Final[dict[str, Schema]] = {
    "AuditEntry": document(
        {
            "id": whole(),
            "at": time(),
            "kind": one_of(*KINDS),
            "outcome": one_of(*OUTCOMES),
            "user": text("Whose token it was; empty if nobody knows."),
            "token": or_null(whole("The id of the token.")),
            "address": text("Where it came from; empty for what was done on this machine."),
            "what": text(),
            "more": whole("How many alike were left out before this one."),
        }
    ),
    "AuditPage": document(
        {
            "entries": listed(named("AuditEntry")),
            "next": or_null(whole("Give it as `before` for older ones.")),
        }
    ),
}

OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/audit",
        name="readAudit",
        summary="Who was turned away, and who changed what, the newest first.",
        handle=page,
        parameters=(
            Parameter(
                name="since",
                about="From then on, in seconds since 1970.",
                bounds=(0, _MOST),
                default=0,
            ),
            Parameter(name="kind", about=f"Only these: {', '.join(KINDS)}."),
            Parameter(name="before", about="Only those with a smaller id.", bounds=(1, _MOST)),
            Parameter(name="limit", about="How many at most.", bounds=(1, 1_000), default=100),
        ),
        responses={200: ResponseSpec("A page of the log.", "AuditPage")},
        errors=(400, 503),
        scope="admin",
    ),
)
