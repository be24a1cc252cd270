"""Storage of the versions of notes: what Dodona replaced and wrote, and moves."""

from __future__ import annotations

import builtins
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from time import time
from typing import Any, Final, Literal, Self, TypeAlias

from sqlalchemy import and_, bindparam, delete, func, select

from dodona.store.db.database import Database, Row, Transaction
from dodona.store.db.statements import insert_into, insert_returning_id, statement
from dodona.store.schema import note_versions

VersionAction: TypeAlias = Literal["external", "write", "index", "move", "undo"]

EXTERNAL_AUTHOR: Final = ""  # of a text that Dodona found
_BATCH_SIZE: Final = 200  # rows that one transaction deletes

_COLUMNS: Final = (
    "user_id",
    "project_id",
    "path",
    "version",
    "old_version",
    "content",
    "size",
    "stored_bytes",
    "action",
    "author",
    "from_path",
    "move_id",
    "undoes",
    "written_at",
)
_table = note_versions.c
_RECORD: Final = (
    _table.id,
    _table.path,
    _table.version,
    _table.old_version,
    _table.size,
    _table.action,
    _table.author,
    _table.from_path,
    _table.move_id,
    _table.undoes,
    _table.written_at,
)
_IN_PROJECT = and_(
    _table.user_id == bindparam("user_id"), _table.project_id == bindparam("project_id")
)
_AT_PATH = and_(_IN_PROJECT, _table.path == bindparam("path"))
_INSERT = insert_returning_id(note_versions, *_COLUMNS)
_INSERT_EXTERNAL = insert_into(note_versions, *_COLUMNS)
_SELECT_NEWEST = statement(
    select(*_RECORD).where(_AT_PATH, _table.move_id.is_(None)).order_by(_table.id.desc()).limit(1)
)
_SELECT_MOVE = statement(
    select(_table.id).where(
        _AT_PATH,
        _table.from_path == bindparam("from_path"),
        _table.move_id == bindparam("move_id"),
    )
)
_SELECT_PROJECT = statement(
    select(*_RECORD).where(_IN_PROJECT).order_by(_table.id.desc()).limit(bindparam("count"))
)
_SELECT_PATH = statement(
    select(*_RECORD)
    .where(
        _IN_PROJECT,
        (_table.path == bindparam("path")) | (_table.from_path == bindparam("path")),
    )
    .order_by(_table.id.desc())
    .limit(bindparam("count"))
)
_SELECT_ONE = statement(select(*_RECORD).where(_IN_PROJECT, _table.id == bindparam("id")))
_SELECT_CONTENT = statement(
    select(_table.id, _table.content)
    .where(_AT_PATH, _table.version == bindparam("version"), _table.content.is_not(None))
    .order_by(_table.id.desc())
    .limit(1)
)
_later = note_versions.alias("later")
# A version ages from the moment that a later one replaced it.
_SELECT_OLD = statement(
    select(_table.id)
    .where(
        _table.written_at < bindparam("before"),
        select(_later.c.id)
        .where(
            _later.c.user_id == _table.user_id,
            _later.c.project_id == _table.project_id,
            _later.c.path == _table.path,
            _later.c.id > _table.id,
            _later.c.written_at < bindparam("before"),
        )
        .exists(),
    )
    .limit(_BATCH_SIZE)
)
_stored_bytes = func.sum(_table.stored_bytes)
_SELECT_LARGE = statement(
    select(_table.user_id, _table.project_id, _stored_bytes)
    .group_by(_table.user_id, _table.project_id)
    .having(_stored_bytes > bindparam("max_bytes"))
)
_SELECT_OLDEST = statement(
    select(_table.id, _table.stored_bytes).where(_IN_PROJECT).order_by(_table.id).limit(_BATCH_SIZE)
)
_DELETE = statement(delete(note_versions).where(_table.id == bindparam("id")))


@dataclass(frozen=True, slots=True)
class StoredContent:
    """A content with its version. Without data, the note does not exist."""

    version: str = ""
    size: int = 0
    compressed: bytes | None = None

    @classmethod
    def of(cls, version: str, data: bytes) -> Self:
        """Compress a content. Call this in a thread."""
        return cls(version, len(data), zlib.compress(data))


NO_CONTENT: Final = StoredContent()


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteReplacement:
    """A note that is about to be replaced, created or removed. `undoes` is the undone version."""

    path: str
    old: StoredContent
    new: StoredContent
    action: VersionAction
    author: str
    undoes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMove:
    """A move in the move log with this id. `undoes` is the entry that it reverts."""

    id: int
    path: str
    to: str
    moved_at: float
    undoes: int | None = None


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """A stored version, without its content. `old_version` is what it replaced."""

    id: int
    path: str
    version: str
    old_version: str
    size: int
    action: VersionAction
    author: str
    from_path: str | None
    move_id: int | None
    undoes: int | None
    written_at: float


class NoteVersions:
    """The versions of the notes of all users. The content is stored as it is in the file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, user_id: str, project_id: str, change: NoteReplacement) -> int:
        """Store a note before it is replaced: the old content if it is new here, and the new one.

        Return the id of the new version. A call that is repeated after a crash adds nothing.
        """
        project = {"user_id": user_id, "project_id": project_id}

        def add(tx: Transaction) -> int:
            row = tx.fetch_one(_SELECT_NEWEST, path=change.path, **project)
            newest = VersionRecord(*row) if row is not None else None
            if newest is not None and _is_repeated(newest, change):
                return newest.id
            now = time()
            present = newest.version if newest is not None else ""
            if change.old.version and change.old.version != present:
                external = _values(change.path, change.old, present, now)
                tx.execute(_INSERT_EXTERNAL, **project, **external)
            values = _values(change.path, change.new, change.old.version, now)
            values |= {"action": change.action, "author": change.author, "undoes": change.undoes}
            return tx.insert(_INSERT, **project, **values)

        return await self._database.write(add)

    async def add_move(self, user_id: str, project_id: str, move: StoredMove, author: str) -> int:
        """Store that a note was moved, once; return the id of the entry."""
        project = {"user_id": user_id, "project_id": project_id}
        values = _values(move.to, NO_CONTENT, "", move.moved_at)
        values |= {
            "action": "move" if move.undoes is None else "undo",
            "author": author,
            "from_path": move.path,
            "move_id": move.id,
            "undoes": move.undoes,
        }

        def add(tx: Transaction) -> int:
            present = _find_move(tx, project, move)
            return tx.insert(_INSERT, **project, **values) if present is None else present

        return await self._database.write(add)

    async def find_moves(
        self, user_id: str, project_id: str, moves: Sequence[StoredMove]
    ) -> builtins.list[int | None]:
        """Return the ids of the entries of moves."""
        project = {"user_id": user_id, "project_id": project_id}
        return await self._database.read(
            lambda tx: [_find_move(tx, project, move) for move in moves]
        )

    async def list(
        self, user_id: str, project_id: str, *, path: str | None = None, limit: int
    ) -> list[VersionRecord]:
        """Return the versions of a project or of a note, newest first."""
        values: dict[str, Any] = {"user_id": user_id, "project_id": project_id, "count": limit}

        def list_rows(tx: Transaction) -> list[Row]:
            if path is None:
                return tx.fetch_all(_SELECT_PROJECT, **values)
            return tx.fetch_all(_SELECT_PATH, path=path, **values)

        return [VersionRecord(*row) for row in await self._database.read(list_rows)]

    async def get(self, user_id: str, project_id: str, number: int) -> VersionRecord | None:
        """Return a version of a project."""
        row = await self._database.read(
            lambda tx: tx.fetch_one(_SELECT_ONE, user_id=user_id, project_id=project_id, id=number)
        )
        return VersionRecord(*row) if row is not None else None

    async def content(
        self, user_id: str, project_id: str, *, path: str, version: str
    ) -> tuple[int, bytes] | None:
        """Return a content that the note had, with its id; None if it is not stored any more."""
        row = await self._database.read(
            lambda tx: tx.fetch_one(
                _SELECT_CONTENT, user_id=user_id, project_id=project_id, path=path, version=version
            )
        )
        return (row[0], zlib.decompress(row[1])) if row is not None else None

    async def delete_old(self, before: float) -> int:
        """Delete the versions that were replaced before a time; return their number."""
        deleted = 0
        while rows := await self._database.read(
            lambda tx: tx.fetch_all(_SELECT_OLD, before=before)
        ):
            ids = [row[0] for row in rows]
            deleted += await self._database.write(partial(_delete, ids=ids), soft=True)
        return deleted

    async def delete_oversize(self, max_bytes: int) -> int:
        """Delete the oldest versions of each project that needs more space; return their number."""
        large = await self._database.read(
            lambda tx: tx.fetch_all(_SELECT_LARGE, max_bytes=max_bytes)
        )
        deleted = 0
        for user_id, project_id, size in large:
            excess = size - max_bytes
            while excess > 0:
                count, freed = await self._delete_oldest(user_id, project_id, excess)
                deleted += count
                excess -= freed
                if not count:
                    break
        return deleted

    async def _delete_oldest(self, user_id: str, project_id: str, excess: int) -> tuple[int, int]:
        """Delete a batch of the oldest versions; return their number and size."""

        def delete_batch(tx: Transaction) -> tuple[int, int]:
            ids: list[int] = []
            freed = 0
            for number, size in tx.fetch_all(
                _SELECT_OLDEST, user_id=user_id, project_id=project_id
            ):
                if freed >= excess:
                    break
                ids.append(number)
                freed += size
            return _delete(tx, ids), freed

        return await self._database.write(delete_batch, soft=True)


def _find_move(tx: Transaction, project: dict[str, str], move: StoredMove) -> int | None:
    row = tx.fetch_one(_SELECT_MOVE, path=move.to, from_path=move.path, move_id=move.id, **project)
    return row[0] if row is not None else None


def _is_repeated(newest: VersionRecord, change: NoteReplacement) -> bool:
    """Whether the newest version is this change, which a crash or a conflict prevented."""
    return (
        newest.version == change.new.version
        and newest.old_version == change.old.version
        and (newest.action, newest.author, newest.undoes)
        == (change.action, change.author, change.undoes)
    )


def _values(path: str, content: StoredContent, old_version: str, now: float) -> dict[str, Any]:
    """Return the columns of a row; as they are, those of a text that Dodona found."""
    return {
        "path": path,
        "version": content.version,
        "old_version": old_version,
        "content": content.compressed,
        "size": content.size,
        "stored_bytes": len(content.compressed or b""),
        "action": "external",
        "author": EXTERNAL_AUTHOR,
        "from_path": None,
        "move_id": None,
        "undoes": None,
        "written_at": now,
    }


def _delete(tx: Transaction, ids: list[int]) -> int:
    tx.execute_many(_DELETE, [{"id": number} for number in ids])
    return len(ids)
