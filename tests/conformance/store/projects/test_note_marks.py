"""Marked blocks of notes: each has all its marks, and readers find what is new by the last row."""

from __future__ import annotations

import asyncio

from dodona.core.domain.trust import NO_MARKS, Mark, Marks, merge_marks
from dodona.core.messages import Origin
from dodona.store import Store
from dodona.store.projects.note_marks import BlockMarks, NoteMarks

WEB, PEER = Mark(Origin.WEB, "https://example.org/"), Mark(Origin.PEER, "eve")
BIG = 2**63 - 1
FOLDER = "vault"


async def test_a_block_collects_marks(store: Store) -> None:
    """A change is a new row, and the same marks again are none; blocks are their user's."""
    marks = store.note_marks
    assert await marks.read_after("ada", FOLDER, 0) == (0, [])
    await marks.add("ada", FOLDER, {BIG: frozenset({WEB}), -BIG: frozenset({WEB}), 7: frozenset()})
    last, rows = await marks.read_after("ada", FOLDER, 0)
    assert _by_block(rows) == {BIG: {WEB}, -BIG: {WEB}}
    await marks.add("ada", FOLDER, {BIG: frozenset({WEB})})
    assert await marks.read_after("ada", FOLDER, last) == (last, [])
    await marks.add("ada", FOLDER, {BIG: frozenset({PEER})})
    newest, rows = await marks.read_after("ada", FOLDER, last)
    assert (newest > last, _by_block(rows)) == (True, {BIG: {WEB, PEER}})
    assert await marks.read_after("ada", FOLDER, newest) == (newest, [])
    _, rows = await marks.read_after("ada", FOLDER, 0)
    assert _by_block(rows) == {BIG: {WEB, PEER}, -BIG: {WEB}}
    assert await marks.read_after("eve", "another", 0) == (0, [])


async def test_marks_added_at_once_are_all_found(store: Store, second: Store) -> None:
    """By a reader that only asks for what is new, while two processes add."""
    found: dict[int, set[Mark]] = {}
    last = 0

    async def add(by: Store, mark: Mark) -> None:
        for block in range(20):
            await by.note_marks.add("ada", FOLDER, {block: frozenset({mark})})

    adding = asyncio.gather(add(store, WEB), add(second, PEER))
    is_done = False
    while not is_done:
        is_done = adding.done()
        last, changed = await store.note_marks.read_after("ada", FOLDER, last)
        for row in changed:
            assert found.get(row.block, set()) <= row.marks
            found[row.block] = set(row.marks)
    await adding
    assert found == {block: {WEB, PEER} for block in range(20)}


async def test_sources_contain_no_secrets(store: Store) -> None:
    """They are shown to people."""
    marks = NoteMarks(store.database, redact=lambda text: text.replace("s3cret", "…"))
    await marks.add("ada", FOLDER, {1: frozenset({Mark(Origin.WEB, "https://x/?key=s3cret")})})
    _, (row,) = await marks.read_after("ada", FOLDER, 0)
    assert row.marks == {Mark(Origin.WEB, "https://x/?key=…")}


async def test_users_who_share_a_vault_share_its_marks(store: Store) -> None:
    """Without what the other has read. A user's own marks apply in all of their vaults."""
    marks = store.note_marks
    await marks.add("ada", FOLDER, {1: frozenset({WEB})})
    await marks.add("eve", FOLDER, {1: frozenset({PEER}), 2: frozenset({PEER})})
    _, rows = await marks.read_after("ada", FOLDER, 0)
    assert _by_block(rows) == {1: {WEB, Mark(Origin.PEER)}, 2: {Mark(Origin.PEER)}}
    _, rows = await marks.read_after("ada", "another", 0)
    assert _by_block(rows) == {1: {WEB}}


async def test_a_review_is_a_row_without_marks(store: Store) -> None:
    """It replaces the user's rows of the text in all vaults, and no row of another user."""
    marks = store.note_marks
    await marks.add("ada", FOLDER, {1: frozenset({WEB}), 2: frozenset({WEB})})
    await marks.add("ada", "another", {1: frozenset({WEB}), 2: frozenset({WEB})})
    await marks.add("eve", FOLDER, {1: frozenset({PEER})})
    last, _ = await marks.read_after("ada", FOLDER, 0)
    await marks.clear("ada", FOLDER, [1, 2], is_local=lambda block: block == 2)
    _, changed = await marks.read_after("ada", FOLDER, last)
    assert {(row.folder, row.block, row.marks) for row in changed} == {
        (FOLDER, 1, NO_MARKS),
        ("another", 1, NO_MARKS),
        (FOLDER, 2, NO_MARKS),
    }
    _, rows = await marks.read_after("eve", FOLDER, 0)
    assert _by_block(rows) == {1: {PEER}, 2: set()}
    _, rows = await marks.read_after("ada", "another", 0)
    assert [row.marks for row in rows if row.block == 2] == [{WEB}, NO_MARKS]
    await marks.add("ada", FOLDER, {1: frozenset({WEB})})
    _, rows = await marks.read_after("ada", FOLDER, 0)
    assert rows[-1].marks == {WEB}, "marked again by a later write"


def _by_block(rows: list[BlockMarks]) -> dict[int, Marks]:
    found: dict[int, Marks] = {}
    for row in rows:
        found[row.block] = merge_marks(found.get(row.block, ()), row.marks)
    return found
