"""The log of moves: written before a note is moved, so that a crash can be recovered.

It is a file next to the index. Unlike the index, it cannot be rebuilt.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Generator, Iterable
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dodona.core.domain.knowledge.notes import NoteMove
from dodona.core.errors import ToolFailed
from dodona.core.json_document import Timestamp
from dodona.tools.vault.moves.relink import LinkEdit

MAX_LOGGED_MOVES: Final = 2_000  # older moves are deleted
LOCK_TIMEOUT_SECONDS: Final = 20.0

_APPLICATION_ID: Final = 0x444F444D  # "DODM"
# `state` is begun or done. `undoes` is the move that this one reverts, `undone_by` the move that
# reverted it. `is_back` is set if the move goes back to an earlier path: an undo, but not a redo.
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS moves (
    id INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT NOT NULL, target TEXT NOT NULL,
    inode INTEGER NOT NULL, moved_at REAL NOT NULL, state TEXT NOT NULL, relinked TEXT NOT NULL,
    undoes INTEGER, undone_by INTEGER, is_back INTEGER NOT NULL DEFAULT 0
)
"""
_COLUMNS: Final = "id, path, target, inode, moved_at, relinked, undoes, undone_by, is_back"
_UNDOABLE: Final = "state = 'done' AND undone_by IS NULL"


@dataclass(frozen=True, slots=True)
class RelinkedNote:
    """A note whose links are rewritten: its path after the move, its versions and the edits."""

    note: str
    old_version: str
    new_version: str
    edits: tuple[LinkEdit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A move of a note. `inode` is the inode number of the moved file."""

    id: int = 0
    path: str
    to: str
    inode: int
    moved_at: float = 0.0
    relinked: tuple[RelinkedNote, ...]
    undoes: int | None = None
    undone_by: int | None = None
    is_revert: bool = False

    def to_note_move(self) -> NoteMove:
        """Return the public form of the move."""
        notes = tuple(sorted(note.note for note in self.relinked))
        return NoteMove(self.id, self.path, self.to, notes, Timestamp(self.moved_at))


class MoveLog:
    """The log of moves. Methods block; only the holder of the vault's lock may write."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def record_start(self, move: Move) -> Move:
        """Log a move before it starts; return it with its id and time."""
        with self._connect() as db, db:
            cursor = db.execute(
                "INSERT INTO moves (path, target, inode, moved_at, state, relinked, undoes,"
                " is_back) VALUES (?, ?, ?, ?, 'begun', ?, ?, ?)",
                (move.path, move.to, move.inode, time.time(), _relinked_to_json(move.relinked),
                 move.undoes, move.is_revert),
            )  # fmt: skip
            db.execute(
                "DELETE FROM moves WHERE id <= ?", ((cursor.lastrowid or 0) - MAX_LOGGED_MOVES,)
            )
            return _select_first(db, "id = ?", cursor.lastrowid) or move

    def record_finish(self, move: Move, relinked: Iterable[RelinkedNote]) -> Move:
        """Log that a move is done and which notes were rewritten."""
        with self._connect() as db, db:
            db.execute(
                "UPDATE moves SET state = 'done', relinked = ? WHERE id = ?",
                (_relinked_to_json(relinked), move.id),
            )
            db.execute("UPDATE moves SET undone_by = ? WHERE id = ?", (move.id, move.undoes))
            return _select_first(db, "id = ?", move.id) or move

    def delete(self, move: Move) -> None:
        """Delete a move that was rolled back."""
        with self._connect() as db, db:
            db.execute("DELETE FROM moves WHERE id = ?", (move.id,))

    def find_unfinished(self) -> Move | None:
        """Return the move that was started but not finished."""
        return self._find_first("state = 'begun' ORDER BY id DESC")

    def get(self, number: int) -> Move | None:
        """Return a finished move by its number."""
        return self._find_first("state = 'done' AND id = ?", number)

    def latest_undoable(self) -> Move | None:
        """Return the latest move that can be undone and is not an undo."""
        return self._find_first(f"{_UNDOABLE} AND NOT is_back ORDER BY id DESC")

    def find_done(self, path: str, to: str) -> Move | None:
        """Return the latest move between these paths that has not been undone."""
        return self._find_first(
            f"{_UNDOABLE} AND path = ? AND target = ? ORDER BY id DESC", path, to
        )

    def list_undoable(self, limit: int) -> list[Move]:
        """Return the moves that can be undone, newest first."""
        if not self._path.exists():
            return []
        with self._connect() as db:
            rows = db.execute(
                f"SELECT {_COLUMNS} FROM moves WHERE {_UNDOABLE} ORDER BY id DESC LIMIT ?",  # noqa: S608
                (limit,),
            )
            return [_move_from_row(row) for row in rows]

    def file_stamp(self) -> tuple[int, int]:
        """Return a value that changes when the log is written."""
        try:
            status = os.stat(self._path)
        except FileNotFoundError:
            return 0, 0
        return status.st_mtime_ns, status.st_size

    def _find_first(self, condition: str, *values: Any) -> Move | None:
        if not self._path.exists():
            return None
        with self._connect() as db:
            return _select_first(db, condition, *values)

    @contextmanager
    def _connect(self) -> Generator[sqlite3.Connection]:
        """Open the log. A database of another program is not touched."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            with closing(sqlite3.connect(self._path, timeout=LOCK_TIMEOUT_SECONDS)) as db:
                db.execute("PRAGMA synchronous = FULL")
                _prepare(db)
                yield db
        except sqlite3.Error as error:
            raise ToolFailed(
                f"the move log cannot be used: {error}.",
                hint="The operator must check the folder 'indexes' in Dodona's home.",
            ) from error


def _prepare(db: sqlite3.Connection) -> None:
    if db.execute("PRAGMA application_id").fetchone()[0] == _APPLICATION_ID:
        return
    if db.execute("SELECT 1 FROM sqlite_schema").fetchone() is not None:
        raise sqlite3.DatabaseError("it belongs to another program")
    with db:
        db.execute(_SCHEMA)
    db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")


def _select_first(db: sqlite3.Connection, condition: str, *values: Any) -> Move | None:
    rows = db.execute(f"SELECT {_COLUMNS} FROM moves WHERE {condition} LIMIT 1", values)  # noqa: S608
    row = rows.fetchone()
    return _move_from_row(row) if row else None


def _move_from_row(row: tuple[Any, ...]) -> Move:
    number, path, to, inode, moved_at, relinked, undoes, undone_by, is_back = row
    return Move(
        id=number,
        path=path,
        to=to,
        inode=inode,
        moved_at=moved_at,
        relinked=tuple(map(_relinked_from_json, json.loads(relinked))),
        undoes=undoes,
        undone_by=undone_by,
        is_revert=bool(is_back),
    )


def _relinked_to_json(relinked: Iterable[RelinkedNote]) -> str:
    # In ASCII: a target may contain undecodable bytes, as lone surrogates.
    return json.dumps(
        [
            (note.note, note.old_version, note.new_version,
             [(edit.start, edit.old, edit.new) for edit in note.edits])
            for note in relinked
        ]
    )  # fmt: skip


def _relinked_from_json(record: tuple[str, str, str, list[tuple[int, str, str]]]) -> RelinkedNote:
    note, old_version, new_version, edits = record
    return RelinkedNote(note, old_version, new_version, tuple(LinkEdit(*edit) for edit in edits))
