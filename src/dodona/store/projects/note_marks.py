"""Storage of the marks of notes: the untrusted sources of blocks of text, by the key of a block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import time

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
_SELECT_MARKS = statement(select(note_marks.c.marks_json).where(*_BLOCK))
_DELETE_MARKS = statement(delete(note_marks).where(*_BLOCK))
_INSERT_MARKS = insert_into(note_marks, "user_id", "folder", "block", "marks_json", "created_at")


class NoteMarks:
    """The marked blocks of all users. A block that has marks keeps them.

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
    ) -> tuple[int, dict[int, Marks]]:
        """Return what changed after a row: the last row, and the marks of the blocks since.

        The sources that another user has read are left out, and `is_local` blocks of other vaults.
        """
        rows = await self._database.read(
            lambda tx: tx.fetch_all(_SELECT_AFTER, user_id=user_id, folder=folder, after=after)
        )
        changed: dict[int, Marks] = {}
        for _, owner, vault, block, marks_json in rows:
            if vault != folder and is_local(block):
                continue
            marks = decode_marks(marks_json)
            if owner != user_id:
                marks = frozenset(Mark(mark.origin) for mark in marks)
            changed[block] = merge_marks(changed.get(block, ()), marks)
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


def _add_marks(tx: Transaction, key: Mapping[str, str | int], marks: Marks) -> None:
    row = tx.fetch_one(_SELECT_MARKS, **key)
    present = decode_marks(row[0]) if row is not None else None
    merged = merge_marks(present or (), marks)
    if not merged or merged == present:
        return
    tx.execute(_DELETE_MARKS, **key)  # a changed row gets a new id
    tx.execute(_INSERT_MARKS, marks_json=encode_marks(merged), created_at=time(), **key)
