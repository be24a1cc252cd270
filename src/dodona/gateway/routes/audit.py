"""The audit log, for administrators."""

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
    """List entries, newest first. Pass `next` as `before` to get the next page."""
    kind, limit = request.params["kind"], request.params["limit"]
    if kind is not None and kind not in AUDIT_KINDS:
        hint = did_you_mean(kind, AUDIT_KINDS) or f"Kinds are {', '.join(AUDIT_KINDS)}."
        raise BadRequest(f"there is no kind {kind!r:.80}.", hint=hint)
    entries = (
        []
        if request.state.audit is None
        else await request.state.audit.page(
            since=float(request.params["since"]),
            kind=kind or "",
            before=request.params["before"],
            limit=limit,
        )
    )
    next_before = entries[-1].id if len(entries) == limit else None
    return json_response({"entries": [audit_json(each) for each in entries], "next": next_before})


SCHEMAS: Final[dict[str, Schema]] = {
    "AuditEntry": response_object(
        {
            "id": integer(),
            "at": date_time(),
            "kind": enum(*AUDIT_KINDS),
            "outcome": enum(*AUDIT_OUTCOMES),
            "user": string("The user of the token; empty if unknown."),
            "token": nullable(integer("The id of the token.")),
            "address": string("The client address; empty for local commands."),
            "what": string("What happened."),
            "more": integer("Number of similar entries omitted before this one."),
        }
    ),
    "AuditPage": response_object(
        {
            "entries": array(ref("AuditEntry")),
            "next": nullable(
                integer("Pass it as `before` to get older entries; null on the last page.")
            ),
        }
    ),
}

OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/audit",
        operation_id="readAudit",
        summary="List rejected requests and administrative changes, newest first.",
        handler=list_entries,
        parameters=(
            RequestParameter(
                name="since",
                description="Only entries since this Unix time, in seconds.",
                bounds=(0, _MAX_INTEGER),
                default=0,
            ),
            RequestParameter(
                name="kind", description=f"Only entries of this kind: {', '.join(AUDIT_KINDS)}."
            ),
            RequestParameter(
                name="before",
                description="Only entries with a smaller id.",
                bounds=(1, _MAX_INTEGER),
            ),
            RequestParameter(
                name="limit",
                description="Maximum number to return.",
                bounds=(1, 1_000),
                default=100,
            ),
        ),
        responses={200: ResponseSpec("A page of entries.", "AuditPage")},
        error_statuses=(400, 503),
        scope="admin",
    ),
)
