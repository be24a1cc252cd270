"""JSON forms of notes, moves and audit entries, shared by HTTP and the command line."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from dodona.core.domain.audit import AuditEntry
from dodona.core.domain.knowledge.notes import NoteMove, NoteSummary


def iso(timestamp: float | None) -> str | None:
    """Format a timestamp as ISO 8601 in UTC with milliseconds."""
    if timestamp is None:
        return None
    return datetime.fromtimestamp(timestamp, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def duration_ms(start: float | None, end: float | None) -> int | None:
    """Return a duration in milliseconds; None before the end, never negative if clocks go back."""
    return None if start is None or end is None else max(0, round((end - start) * 1000))


def note_json(note: NoteSummary) -> dict[str, Any]:
    """Return the JSON form of a note."""
    return {
        "path": note.path,
        "title": note.title,
        "tags": note.tags,
        "modified_at": iso(note.modified),
        "size": note.size,
    }


def moved_json(move: NoteMove) -> dict[str, Any]:
    """Return the JSON form of a moved note."""
    return asdict(move) | {"moved_at": iso(move.moved_at)}


def audit_json(entry: AuditEntry) -> dict[str, Any]:
    """Return the JSON form of an audit entry."""
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
