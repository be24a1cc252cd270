"""Storage of the marks of notes: the untrusted sources of blocks of text, by the key of a block.

A row without marks is a review: its user has looked at the block after the rows before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from time import time
from typing import NamedTuple

from sqlalchemy import bindparam, delete, or_, select

from dodona.core.domain.trust import (
    Mark,
    Marks,
    decode_marks,
    encode_marks,
    merge_marks,
    redact_marks,
)
from dodona.store.db.database import Database, Transaction
from dodona.store.db.statements import insert_into, statement
from dodona.store.db.text import Redact
from dodona.store.schema import note_marks

_OF_USER = note_marks.c.user_id == bindparam("user_id")
_IN_FOLDER = note_marks.c.folder == bindparam("folder")
_BLOCK = (_OF_USER, _IN_FOLDER, note_marks.c.block == bindparam("block"))
_SELECT_AFTER = statement(
    select(*(note_marks.c[name] for name in ("id", "user_id", "folder", "block", "marks_json")))
    .where(or_(_OF_USER, _IN_FOLDER), note_marks.c.id > bindparam("after"))
    .order_by(note_marks.c.id)
)
_SELECT_FOLDERS = statement(
    select(note_marks.c.folder).where(_OF_USER, note_marks.c.block == bindparam("block"))
)
_SELECT_MARKS = statement(select(note_marks.c.marks_json).where(*_BLOCK))
_DELETE_MARKS = statement(delete(note_marks).where(*_BLOCK))
_INSERT_MARKS = insert_into(note_marks, "user_id", "folder", "block", "marks_json", "created_at")


class BlockMarks(NamedTuple):
    """The marks that a user's runs gave to a block in a vault; none if the user reviewed it."""

    id: int
    user_id: str
    folder: str
    block: int
    marks: Marks


class NoteMarks:
    """The marked blocks of all users. A block keeps its marks until its user has reviewed it.

    They apply to all notes of their user, and to a vault that several users share.
    `redact` removes known secrets from the names of sources.
    """

    def __init__(self, database: Database, *, redact: Redact = str) -> None:
        self._database = database
        self._redact = redact

    async def read_after(
        self,
        user_id: str,
        folder: str,
        after: int,
        *,
        is_local: Callable[[int], bool] = lambda _: False,
    ) -> tuple[int, list[BlockMarks]]:
        """Return what changed after a row: the id of the last row, and the rows since.

        The sources that another user has read are left out, and `is_local` blocks of other vaults.
        """
        rows = await self._database.read(
            lambda tx: tx.fetch_all(_SELECT_AFTER, user_id=user_id, folder=folder, after=after)
        )
        changed: list[BlockMarks] = []
        for row_id, owner, vault, block, marks_json in rows:
            if vault != folder and is_local(block):
                continue
            marks = decode_marks(marks_json)
            if owner != user_id:
                marks = frozenset(Mark(mark.origin) for mark in marks)
            changed.append(BlockMarks(row_id, owner, vault, block, marks))
        return (rows[-1][0] if rows else after), changed

    async def add(self, user_id: str, folder: str, blocks: Mapping[int, Marks]) -> None:
        """Add marks to blocks of a vault; durable when this returns."""
        redacted = {block: redact_marks(marks, self._redact) for block, marks in blocks.items()}

        def add(tx: Transaction) -> None:
            # Rows become visible in the order of their ids, so that `read_after` misses none.
            tx.lock_name("note marks")
            for block, marks in redacted.items():
                key = {"user_id": user_id, "folder": folder, "block": block}
                _add_marks(tx, key, marks)

        if blocks:
            await self._database.write(add)

    async def clear(
        self,
        user_id: str,
        folder: str,
        blocks: Iterable[int],
        *,
        is_local: Callable[[int], bool] = lambda _: False,
    ) -> None:
        """Store that a user has reviewed blocks of a vault.

        Their marks no longer apply to the user; those that other users gave still apply to them. A
        block that is not `is_local` is the same text in every vault.
        """
        reviewed = tuple(blocks)

        def clear(tx: Transaction) -> None:
            tx.lock_name("note marks")
            for block in reviewed:
                rows = (
                    []
                    if is_local(block)
                    else tx.fetch_all(_SELECT_FOLDERS, user_id=user_id, block=block)
                )
                for each in {folder, *(row[0] for row in rows)}:
                    key = {"user_id": user_id, "folder": each, "block": block}
                    tx.execute(_DELETE_MARKS, **key)
                    tx.execute(_INSERT_MARKS, marks_json="[]", created_at=time(), **key)

        if reviewed:
            await self._database.write(clear)


def _add_marks(tx: Transaction, key: Mapping[str, str | int], marks: Marks) -> None:
    row = tx.fetch_one(_SELECT_MARKS, **key)
    present = decode_marks(row[0]) if row is not None else None
    merged = merge_marks(present or (), marks)
    if not merged or merged == present:
        return
    tx.execute(_DELETE_MARKS, **key)  # a changed row gets a new id
    tx.execute(_INSERT_MARKS, marks_json=encode_marks(merged), created_at=time(), **key)
