"""The history of a project's notes: stored versions and moves, with one kind of id."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Sequence
from typing import Final

from dodona.core.domain.knowledge.notes import NoteHistoryEntry, NoteMove
from dodona.core.errors import Conflict, NotFound
from dodona.core.json_document import Timestamp
from dodona.store.projects.note_versions import (
    NoteReplacement,
    NoteVersions,
    StoredMove,
    VersionRecord,
)

MAX_UNDO_SEARCH: Final = 1_000  # entries in which the latest change is searched
_UNDOABLE: Final = ("write", "index", "move")


class NoteHistory:
    """The versions of the notes of a user's project."""

    def __init__(self, storage: NoteVersions, user_id: str, project_id: str) -> None:
        self._storage = storage
        self._project = (user_id, project_id)

    async def add(self, change: NoteReplacement) -> int:
        """Store the contents of a note before it is replaced; return the id of the entry."""
        return await self._storage.add(*self._project, change)

    async def add_move(self, move: NoteMove, author: str, undoes: int | None = None) -> int:
        """Store that a note was moved; return the id of the entry."""
        return await self._storage.add_move(*self._project, _stored_move(move, undoes), author)

    async def add_moves(self, moves: Sequence[NoteMove]) -> builtins.list[int]:
        """Return the ids of logged moves. Those that the history lacks are added."""
        found = await self._storage.find_moves(*self._project, [*map(_stored_move, moves)])
        ids = {move.id: number for move, number in zip(moves, found, strict=True)}
        for move in reversed(moves):  # oldest first
            if ids[move.id] is None:  # finished after a crash, or older than the history
                ids[move.id] = await self.add_move(move, author="")
        return [ids[move.id] or 0 for move in moves]

    async def list(self, path: str | None, limit: int) -> builtins.list[VersionRecord]:
        """Return the entries of all notes or of one, newest first."""
        return await self._storage.list(*self._project, path=path, limit=limit)

    async def get(self, number: int) -> VersionRecord:
        """Return an entry."""
        record = await self._storage.get(*self._project, number)
        if record is None:
            raise NotFound(f"there is no change {number}.")
        return record

    async def find_content(self, path: str, version: str) -> tuple[int, bytes] | None:
        """Return a content that a note had, with the id of its entry."""
        return await self._storage.content(*self._project, path=path, version=version)

    async def content(self, path: str, version: str) -> bytes:
        """Return a content that a note had. Raises Conflict if it is not stored any more."""
        found = await self.find_content(path, version)
        if found is None:
            raise Conflict(f"the text that '{path}' had then is not stored any more.")
        return found[1]

    async def latest_undoable(self) -> VersionRecord:
        """Return the latest write or move that is not undone."""
        record = _find_undoable(await self.list(None, MAX_UNDO_SEARCH))
        if record is None:
            raise NotFound("there is nothing to undo.")
        return record


def to_history_entry(record: VersionRecord, current_version: str) -> NoteHistoryEntry:
    """Return the public form of an entry, for a note that has this version now."""
    return NoteHistoryEntry(
        id=record.id,
        path=record.path,
        action=record.action,
        author=record.author,
        written_at=Timestamp(record.written_at),
        size=record.size,
        version=record.version,
        old_version=record.old_version,
        from_path=record.from_path,
        undoes=record.undoes,
        is_current=bool(record.version) and record.version == current_version,
    )


def _find_undoable(newest_first: Iterable[VersionRecord]) -> VersionRecord | None:
    undone: set[int] = set()
    for record in newest_first:
        if record.id in undone:
            continue  # if it is an undo, what it reverted is not undone any more
        if record.undoes is not None:
            undone.add(record.undoes)
        elif record.action in _UNDOABLE:
            return record
    return None


def _stored_move(move: NoteMove, undoes: int | None = None) -> StoredMove:
    return StoredMove(
        id=move.id, path=move.path, to=move.to, moved_at=float(move.moved_at), undoes=undoes
    )
