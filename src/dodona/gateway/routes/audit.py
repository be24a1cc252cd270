"""The audit log, for administrators."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from dodona.core.domain.audit import AUDIT_KINDS, AuditEntry, AuditKind
from dodona.core.json_document import JsonDocument, NextBefore
from dodona.gateway.http.operation import Routes
from dodona.gateway.http.parameter import up_to, whole
from dodona.gateway.http.request import ApiRequest

routes = Routes()


class AuditPage(JsonDocument):
    """A page of entries."""

    entries: list[AuditEntry]
    next: NextBefore


@routes.get("/api/audit", scope="admin")
async def read_audit(
    request: ApiRequest,
    since: Annotated[int, whole("Only entries since this Unix time, in seconds.")] = 0,
    kind: Annotated[
        AuditKind, Meta(description=f"Only entries of this kind: {', '.join(AUDIT_KINDS)}.")
    ]
    | None = None,
    before: Annotated[int, whole("Only entries with a smaller id.", 1)] | None = None,
    limit: Annotated[int, up_to(1_000)] = 100,
) -> AuditPage:
    """List rejected requests and administrative changes, newest first."""
    log = request.state.audit
    if log is None:
        return AuditPage([], None)
    entries = await log.page(since=float(since), kind=kind or "", before=before, limit=limit)
    return AuditPage(entries, entries[-1].id if len(entries) == limit else None)
