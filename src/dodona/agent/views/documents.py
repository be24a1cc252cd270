"""Notes and moves as documents: the same over HTTP and on the command line."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dodona.agent.views.timestamps import iso
from dodona.core.domain.knowledge.notes import NoteListed, NoteMoved


def note_json(note: NoteListed) -> dict[str, Any]:
    return {
        "path": note.path,
        "title": note.title,
        "tags": note.tags,
        "modified_at": iso(note.modified),
        "size": note.size,
    }


def moved_json(made: NoteMoved) -> dict[str, Any]:
    return asdict(made) | {"moved_at": iso(made.moved_at)}
