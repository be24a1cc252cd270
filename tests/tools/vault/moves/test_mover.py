"""Moves of notes with their links: made, made again, taken back, and cut by a crash."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dodona.core.errors import AccessDenied, Conflict, NotFound, ToolRetry
from dodona.tools.vault import Vault


class Notes:
    """A vault in a folder, and what is in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "vault"
        self.root.mkdir()
        self.vault = self.opened()

    def opened(self) -> Vault:
        """As another process would open it."""
        return Vault(self.root, self.folder / "indexes" / "i.db")

    def write(self, **texts: str) -> None:
        """`a__b` is a/b.md."""
        for name, text in texts.items():
            file = self.root / f"{name.replace('__', '/')}.md"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")

    @property
    def texts(self) -> dict[str, str]:
        return {
            str(file.relative_to(self.root)): file.read_bytes().decode("utf-8", "surrogateescape")
            for file in sorted(self.root.rglob("*.md"))
        }


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path)


async def test_a_note_is_moved_with_every_link_to_it(notes: Notes) -> None:
    """Alias, heading and embed stay, and so does what means other notes."""
    notes.write(
        old__plan="# Plan\n\nsee [[plan#x]] and [t](../a.md)",
        a="[[plan]] [[old/plan|the plan]] ![[Plan#h]] [t](old/plan.md)",
        deep__b="`[[plan]]` [[planet]]",
        deep__planet="[[plan^1]]",
    )
    moved = await notes.vault.move("old/plan.md", "new/deep/idea.md")
    assert notes.texts == {
        "a.md": "[[idea]] [[idea|the plan]] ![[idea#h]] [t](new/deep/idea.md)",
        "deep/b.md": "`[[plan]]` [[planet]]",
        "deep/planet.md": "[[idea^1]]",
        "new/deep/idea.md": "# Plan\n\nsee [[idea#x]] and [t](../../a.md)",
    }
    assert (moved.path, moved.to) == ("old/plan.md", "new/deep/idea.md")
    assert moved.relinked == ("a.md", "deep/planet.md", "new/deep/idea.md")
    assert not (notes.root / "old").exists()
    assert [link.path for link in await notes.vault.backlinks("new/deep/idea.md")] != []
    assert [hit.path for hit in await notes.vault.search("plan", 9)] != []


async def test_a_thousand_backlinks(notes: Notes) -> None:
    """All of them follow, and come back byte for byte."""
    notes.write(
        Hub="# Hub\n", **{f"n{n}": f"# {n}\n\nto [[Hub|{n}]] [[n{n - 1}]]" for n in range(1_000)}
    )
    before = notes.texts
    moved = await notes.vault.move("Hub.md", "places/Centre.md")
    assert len(moved.relinked) == 1_000
    after = notes.texts
    assert after["n7.md"] == "# 7\n\nto [[Centre|7]] [[n6]]"
    assert not [path for path, text in after.items() if "Hub" in text and path[0] == "n"]
    assert len(await notes.vault.backlinks("places/Centre.md")) == 1_000
    await notes.vault.undo()
    assert notes.texts == before


async def test_made_again_it_tells_what_was_done(notes: Notes) -> None:
    """So a call that a crash cut may be made again; it is one move."""
    notes.write(a="x", b="[[a]]")
    first = await notes.vault.move("a.md", "c.md")
    assert await notes.opened().move("a.md", "c.md") == first
    assert await notes.vault.moves() == [first]
    with pytest.raises(NotFound, match=r"there is no note 'a\.md'"):
        await notes.vault.move("a.md", "d.md")
    await notes.vault.undo()
    await notes.vault.move("a.md", "e.md")
    with pytest.raises(NotFound):
        await notes.vault.move("a.md", "c.md")


async def test_links_that_the_new_name_would_take_over(notes: Notes) -> None:
    """They are written so that they still mean what they meant."""
    notes.write(far__Name="far", here__Old="old", here__x="[[Name]] [[Old]]", y="[[Name]]")
    await notes.vault.move("here/Old.md", "here/Name.md")
    assert notes.texts["here/x.md"] == "[[far/Name]] [[here/Name]]"
    assert notes.texts["y.md"] == "[[Name]]"
    await notes.vault.undo()
    assert notes.texts["here/x.md"] == "[[Name]] [[Old]]"
    assert notes.texts["y.md"] == "[[Name]]"


async def test_what_is_in_the_way(notes: Notes) -> None:
    """A note is never replaced, nor put where it cannot be; nothing is changed then."""
    notes.write(a="x [[b]]", b="[[a]]", folder__c="y")
    before = notes.texts
    for to, said in (
        ("b.md", r"there is already a note 'b\.md'"),
        ("a.md", "is already the path of the note"),
        ("B.md", r"'b\.md' already exists"),
        ("Folder/c.md", "'folder' already exists"),
        ("a", "is not a note"),
        ("new/C#.md", r"a link cannot refer to 'new/C#\.md'"),
    ):
        with pytest.raises(ToolRetry, match=said):
            await notes.vault.move("a.md", to)
    for to in ("../a.md", "/a.md", ".hidden/a.md"):
        with pytest.raises(AccessDenied):
            await notes.vault.move("a.md", to)
    with pytest.raises(AccessDenied):
        await notes.vault.move("a.md", "b.md/c.md")
    assert notes.texts == before
    assert sorted(os.listdir(notes.root)) == ["a.md", "b.md", "folder"]
    assert await notes.vault.moves() == []


async def test_a_note_that_links_and_may_not_be_written(notes: Notes) -> None:
    """The move is refused before anything is done."""
    notes.write(a="x", b="[[a]]")
    (notes.root / "b.md").chmod(0o444)
    with pytest.raises(AccessDenied, match=r"'b\.md' is read-only"):
        await notes.vault.move("a.md", "c.md")
    assert notes.texts == {"a.md": "x", "b.md": "[[a]]"}


async def test_a_name_that_changes_in_case_only(notes: Notes) -> None:
    """Is a move like any other."""
    notes.write(plan="x", b="[[plan]] [t](plan.md)")
    await notes.vault.move("plan.md", "Plan.md")
    assert notes.texts == {"Plan.md": "x", "b.md": "[[plan]] [t](plan.md)"}
    assert [link.path for link in await notes.vault.backlinks("Plan.md")] == ["b.md"]


async def test_folders_that_a_move_empties_are_removed(notes: Notes) -> None:
    """Not those that hold something, nor those that were empty before."""
    notes.write(a__b__c="x", a__d="y")
    (notes.root / "empty").mkdir()
    await notes.vault.move("a/b/c.md", "empty/c.md")
    assert sorted(os.listdir(notes.root)) == ["a", "empty"]
    assert os.listdir(notes.root / "a") == ["d.md"]
    await notes.vault.undo()
    assert notes.texts == {"a/b/c.md": "x", "a/d.md": "y"}


async def test_bytes_that_are_no_text_stay(notes: Notes) -> None:
    """Of a note that links, only the link changes; so it is with line ends and marks of order."""
    notes.write(a="x")
    (notes.root / "b.md").write_bytes(b"\xef\xbb\xbfGr\xf6\xdfe\r\n[[a]]\r\n\0")
    await notes.vault.move("a.md", "c.md")
    assert (notes.root / "b.md").read_bytes() == b"\xef\xbb\xbfGr\xf6\xdfe\r\n[[c]]\r\n\0"


async def test_undo_keeps_what_was_written_since(notes: Notes) -> None:
    """Only the links come back, those that were made since too."""
    notes.write(old__plan="the plan", a="[[old/plan|p]]", b="[[plan]]")
    await notes.vault.move("old/plan.md", "new/idea.md")
    notes.write(new__idea="the plan, and more", a="more\n[[idea|p]]\nmore [[idea]]", c="[[idea]]")
    moved = await notes.vault.undo()
    assert notes.texts == {
        "a.md": "more\n[[old/plan|p]]\nmore [[old/plan]]",
        "b.md": "[[plan]]",
        "c.md": "[[plan]]",
        "old/plan.md": "the plan, and more",
    }
    assert (moved.path, moved.to) == ("new/idea.md", "old/plan.md")


async def test_moves_are_undone_one_after_the_other(notes: Notes) -> None:
    """And an undo is a move that can be undone by its number."""
    notes.write(a="x", b="[[a]]")
    start = notes.texts
    await notes.vault.move("a.md", "one.md")
    await notes.vault.move("one.md", "two.md")
    end = notes.texts
    last = await notes.vault.undo()
    assert notes.texts == {"one.md": "x", "b.md": "[[one]]"}
    await notes.vault.undo()
    assert notes.texts == start
    with pytest.raises(NotFound, match="there is no move to undo"):
        await notes.vault.undo()
    with pytest.raises(Conflict, match=r"'one\.md' is gone"):
        await notes.vault.undo(last.id)
    await notes.vault.undo((await notes.vault.moves())[0].id)
    redone = await notes.vault.undo(last.id)
    assert notes.texts == end
    assert (redone.path, redone.to) == ("one.md", "two.md")
    with pytest.raises(Conflict, match="was already undone"):
        await notes.vault.undo(last.id)
    with pytest.raises(NotFound, match="there is no move 99"):
        await notes.vault.undo(99)
    assert [move.id for move in await notes.vault.moves(1)] == [redone.id]


async def test_undo_when_the_old_place_is_taken(notes: Notes) -> None:
    """Nothing is replaced."""
    notes.write(a="x")
    await notes.vault.move("a.md", "b.md")
    notes.write(a="new")
    with pytest.raises(ToolRetry, match=r"there is already a note 'a\.md'"):
        await notes.vault.undo()
    assert notes.texts == {"a.md": "new", "b.md": "x"}


async def test_moves_and_writes_at_once(notes: Notes) -> None:
    """Every link is right in the end, and every line that was written is there."""
    notes.write(hub="x", **{f"n{n}": "[[hub]]\n" for n in range(20)})

    async def add(n: int) -> None:
        while True:
            note = await notes.vault.read(f"n{n}.md")
            try:
                await notes.vault.write(note.path, f"{note.text}line\n", version=note.version)
            except Conflict:
                continue
            return

    async def move() -> None:
        for here, there in (("hub", "a/hub1"), ("a/hub1", "b/hub2"), ("b/hub2", "hub3")):
            await notes.vault.move(f"{here}.md", f"{there}.md")

    await asyncio.gather(move(), *(add(n) for n in range(20)))
    assert {text for path, text in notes.texts.items() if path[0] == "n"} == {"[[hub3]]\nline\n"}


DYING = """
import asyncio, os, signal, sys, threading
from pathlib import Path
from dodona.tools.vault import Vault

folder, event, name, count = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
left = [count]

def watch(frame, kind, argument):
    called = argument.__name__ if kind.startswith("c_") else frame.f_code.co_name
    if kind == event and called == name:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

threading.setprofile(watch)
vault = Vault(folder / "vault", folder / "indexes" / "i.db")
asyncio.run(vault.move("old/hub.md", "new/Centre.md") if len(sys.argv) < 6 else vault.undo())
"""


def dies(notes: Notes, event: str, name: str, count: int, *more: str) -> None:
    """Move in another process, which is killed as it is about to call this, or returns from it."""
    died = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, "-c", DYING, str(notes.folder), event, name, str(count), *more],
        timeout=50,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL


PLACES = [
    ("call", "record_start", 1, False),
    ("c_call", "link", 1, True),
    ("c_call", "unlink", 1, True),
    ("call", "replace_file", 1, True),
    ("call", "replace_file", 4, True),
    ("c_call", "rename", 4, True),
    ("call", "sync_folders", 1, True),
    ("call", "remove_empty_folders", 1, True),
    ("call", "record_finish", 1, True),
]


@pytest.mark.parametrize(("event", "name", "count", "is_moved"), PLACES)
async def test_a_move_that_a_crash_cut(
    notes: Notes,
    event: str,
    name: str,
    count: int,
    is_moved: bool,  # noqa: FBT001
) -> None:
    """Whoever uses the vault next finds it done; or not begun, if it was not written down."""
    notes.write(old__hub="[[hub]] [t](../n2.md)", **{f"n{n}": f"[[hub|{n}]]" for n in range(6)})
    dies(notes, event, name, count)
    listed = [note.path for note in await notes.vault.list()]
    hub, name = ("new/Centre.md", "Centre") if is_moved else ("old/hub.md", "hub")
    assert sorted(listed) == sorted([hub, *(f"n{n}.md" for n in range(6))])
    assert notes.texts == {
        hub: f"[[{name}]] [t](../n2.md)",
        **{f"n{n}.md": f"[[{name}|{n}]]" for n in range(6)},
    }
    assert len(await notes.vault.moves()) == is_moved
    assert not [file for file in notes.root.rglob("*") if file.is_dir() and not any(file.iterdir())]


def half_moved(notes: Notes) -> dict[str, list[str]]:
    """A move that was cut among its links: which notes have the old one, and which the new one.

    There are more notes than threads that write them, so there are always some of both.
    """
    notes.write(old__hub="x", **{f"n{n}": "[[old/hub]]" for n in range(40)})
    dies(notes, "c_return", "rename", 4)
    found: dict[str, list[str]] = {"[[old/hub]]": [], "[[Centre]]": []}
    for path, text in notes.texts.items():
        if path.startswith("n") and "/" not in path:
            found[text].append(path)
    return found


async def test_a_note_that_is_edited_between_crash_and_use(notes: Notes) -> None:
    """Done or not yet done, its links are right and the edit stays; so it is when undone."""
    states = half_moved(notes)
    assert all(states.values())
    edited = [path for paths in states.values() for path in paths]
    for path in edited:
        (notes.root / path).write_text(notes.texts[path] + " edited")
    await notes.vault.read("n1.md")
    assert {notes.texts[path] for path in edited} == {"[[Centre]] edited"}
    await notes.vault.undo()
    assert {notes.texts[path] for path in edited} == {"[[old/hub]] edited"}


async def test_a_link_that_is_removed_between_crash_and_use(notes: Notes) -> None:
    """The note is left alone, and not counted."""
    states = half_moved(notes)
    for paths in states.values():
        (notes.root / paths[0]).write_text("no link")
    (moved,) = await notes.vault.moves()
    gone = {paths[0] for paths in states.values()}
    assert len(moved.relinked) == 38
    assert not gone & {*moved.relinked}
    assert {notes.texts[path] for path in gone} == {"no link"}


async def test_a_cut_move_that_cannot_be_finished_is_taken_back(notes: Notes) -> None:
    """A note that links became read-only: the others get their links back."""
    waiting = half_moved(notes)["[[old/hub]]"][0]
    (notes.root / waiting).chmod(0o444)
    assert (await notes.vault.read("old/hub.md")).text == "x"
    assert notes.texts == {"old/hub.md": "x", **{f"n{n}.md": "[[old/hub]]" for n in range(40)}}
    assert not (notes.root / "new").exists()
    (notes.root / waiting).chmod(0o644)
    assert len((await notes.vault.move("old/hub.md", "new/Centre.md")).relinked) == 40


async def test_a_note_that_is_done_may_be_read_only(notes: Notes) -> None:
    """A cut move is finished: nothing is left to be written there."""
    (notes.root / half_moved(notes)["[[Centre]]"][0]).chmod(0o444)
    assert (await notes.vault.read("new/Centre.md")).text == "x"
    assert notes.texts == {"new/Centre.md": "x", **{f"n{n}.md": "[[Centre]]" for n in range(40)}}


async def test_a_read_only_note_in_which_nothing_changes(notes: Notes) -> None:
    """Does not stand in the way: its link means what it meant."""
    notes.write(far__Name="far", here__Old="old", y="[[Name]]")
    (notes.root / "y.md").chmod(0o444)
    await notes.vault.move("here/Old.md", "here/Name.md")
    assert notes.texts == {"far/Name.md": "far", "here/Name.md": "old", "y.md": "[[Name]]"}


async def test_an_undo_that_a_crash_cut(notes: Notes) -> None:
    """Is finished too, and counts as undone."""
    notes.write(old__hub="x", **{f"n{n}": "[[old/hub]]" for n in range(40)})
    before = notes.texts
    await notes.vault.move("old/hub.md", "new/Centre.md")
    dies(notes, "c_return", "rename", 4, "undo")
    assert notes.texts != before
    vault = notes.opened()
    await vault.list()
    assert notes.texts == before
    with pytest.raises(NotFound, match="there is no move to undo"):
        await vault.undo()
