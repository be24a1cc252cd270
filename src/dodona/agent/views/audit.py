"""Entries of the audit log, for people and programs."""

from __future__ import annotations

from typing import Any

from dodona.agent.views.timestamps import iso
from dodona.core.domain.audit import AuditEntry


def audit_json(entry: AuditEntry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "at": iso(entry.at),
        "kind": entry.kind,
        "outcome": entry.outcome,
        "user": entry.user_id,
        "token": entry.token_id,
        "address": entry.address,
        "what": entry.what,
        "more": entry.more,
    }
