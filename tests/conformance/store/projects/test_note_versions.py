"""Versions of notes: a replaced text is stored with its successor, within limits."""

from __future__ import annotations

import secrets
from dataclasses import replace
from time import time

import pytest

from dodona.core.errors import StoreError
from dodona.store import Store
from dodona.store.projects.note_versions import (
    NO_CONTENT,
    NoteReplacement,
    StoredContent,
    StoredMove,
    VersionAction,
)

SHORT = 1_000  # bytes that do not compress


def text(version: str, data: bytes = b"") -> StoredContent:
    return StoredContent.of(version, data or version.encode())


def change(
    path: str,
    old: StoredContent,
    new: StoredContent,
    action: VersionAction = "write",
    author: str = "oracle",
) -> NoteReplacement:
    return NoteReplacement(path=path, old=old, new=new, action=action, author=author)


async def rows(store: Store, path: str | None = None) -> list[tuple[str, str, str, str]]:
    """The versions of ada's project, newest first."""
    found = await store.note_versions.list("ada", "p", path=path, limit=100)
    assert [each.id for each in found] == sorted((each.id for each in found), reverse=True)
    return [(each.path, each.action, each.old_version, each.version) for each in found]


async def test_the_text_of_another_program_is_stored_before_it_is_replaced(store: Store) -> None:
    """Once: the text that is already the newest version is not stored again."""
    versions = store.note_versions
    await versions.add("ada", "p", change("a.md", text("v1"), text("v2")))
    await versions.add("ada", "p", change("a.md", text("v2"), text("v3"), "index", "user"))
    await versions.add("ada", "p", change("a.md", text("edited"), text("v4")))
    assert await rows(store) == [
        ("a.md", "write", "edited", "v4"),
        ("a.md", "external", "v3", "edited"),
        ("a.md", "index", "v2", "v3"),
        ("a.md", "write", "v1", "v2"),
        ("a.md", "external", "", "v1"),
    ]
    newest, *_, oldest = await versions.list("ada", "p", limit=10)
    assert (newest.author, newest.size, oldest.author) == ("oracle", 2, "")
    assert abs(newest.written_at - time()) < 60
    assert await versions.get("ada", "p", newest.id) == newest
    for version in ("v1", "v2", "edited", "v4"):
        content = await versions.content("ada", "p", path="a.md", version=version)
        assert content is not None
        assert content[1] == version.encode()
    assert await versions.content("ada", "p", path="a.md", version="other") is None


async def test_a_repeated_write_adds_nothing(store: Store) -> None:
    """A crash before the note was replaced leaves a version; the next attempt uses it."""
    first = await store.note_versions.add("ada", "p", change("a.md", text("v1"), text("v2")))
    again = await store.note_versions.add("ada", "p", change("a.md", text("v1"), text("v2")))
    assert (again, len(await rows(store))) == (first, 2)
    by = change("a.md", text("v1"), text("v2"), author="user")
    assert await store.note_versions.add("ada", "p", by) != first


async def test_notes_are_created_removed_and_moved(store: Store) -> None:
    """A removed note has no content; the history of a path includes moves from it."""
    versions = store.note_versions
    await versions.add("ada", "p", change("a.md", NO_CONTENT, text("v1")))
    log = StoredMove(id=3, path="a.md", to="b.md", moved_at=5.0)
    first = await versions.add_move("ada", "p", log, "user")
    assert await versions.add_move("ada", "p", log, "user") == first
    others = [log, replace(log, id=4), replace(log, to="c.md"), replace(log, path="c.md")]
    assert await versions.find_moves("ada", "p", others) == [first, None, None, None]
    assert await versions.find_moves("eve", "p", others[:1]) == [None]
    await versions.add("ada", "p", change("b.md", text("v1"), NO_CONTENT, "undo"))
    moved = ("b.md", "move", "", "")
    assert await rows(store, "a.md") == [moved, ("a.md", "write", "", "v1")]
    assert await rows(store, "b.md") == [
        ("b.md", "undo", "v1", ""),
        ("b.md", "external", "", "v1"),
        moved,
    ]
    (move, *_) = await versions.list("ada", "p", path="a.md", limit=1)
    assert (move.from_path, move.move_id, move.written_at) == ("a.md", 3, 5.0)


async def test_versions_belong_to_a_project_of_a_user(store: Store) -> None:
    """Neither another user nor another project reads them."""
    number = await store.note_versions.add("ada", "p", change("a.md", NO_CONTENT, text("v1")))
    for user, project in (("eve", "p"), ("ada", "q")):
        assert await store.note_versions.list(user, project, limit=9) == []
        assert await store.note_versions.list(user, project, path="a.md", limit=9) == []
        assert await store.note_versions.get(user, project, number) is None
        content = await store.note_versions.content(user, project, path="a.md", version="v1")
        assert content is None


async def test_old_versions_are_deleted(store: Store) -> None:
    """Those that were replaced long ago; never the newest of a note."""
    for number in range(450):
        old, new = text(str(number)), text(str(number + 1))
        await store.note_versions.add("ada", "p", change("a.md", old, new))
    await store.note_versions.add("ada", "p", change("b.md", NO_CONTENT, text("v1")))
    replaced_at = time()
    while time() <= replaced_at:
        pass
    await store.note_versions.add("ada", "p", change("a.md", text("450"), text("new")))
    assert await store.note_versions.delete_old(0.0) == 0
    assert await store.note_versions.delete_old(replaced_at) == 450
    assert await rows(store) == [
        ("a.md", "write", "450", "new"),
        ("b.md", "write", "", "v1"),
        ("a.md", "write", "449", "450"),
    ], "450 was replaced a moment ago, so that change can still be undone"
    assert await store.note_versions.delete_old(time() + 1) == 1
    assert [row[0] for row in await rows(store)] == ["a.md", "b.md"]


async def test_a_project_keeps_a_bounded_size(store: Store) -> None:
    """The oldest versions are deleted until the rest fits; other projects are not touched."""
    for project in ("p", "q"):
        for number in range(250 if project == "p" else 1):
            new = text(str(number), secrets.token_bytes(SHORT))
            await store.note_versions.add("ada", project, change(f"{number}.md", NO_CONTENT, new))
    assert await store.note_versions.delete_oversize(300 * SHORT) == 0
    deleted = await store.note_versions.delete_oversize(10 * SHORT)
    kept = await rows(store)
    assert (len(kept), deleted) == (9, 241), "a compressed text is a little longer here"
    assert [row[0] for row in kept] == [f"{number}.md" for number in range(249, 240, -1)]
    assert len(await store.note_versions.list("ada", "q", limit=9)) == 1


async def test_a_version_that_cannot_be_stored_is_an_error(second: Store) -> None:
    await second.close()
    with pytest.raises(StoreError, match="closed"):
        await second.note_versions.add("ada", "p", change("a.md", NO_CONTENT, text("v1")))
