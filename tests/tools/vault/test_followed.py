"""A vault that is followed: it knows of changes, and nobody who asks looks through the folder."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from dodona.concurrency.file_watcher import FileWatcher
from dodona.core.messages import ToolCall
from dodona.core.ports.tools import ToolContext
from dodona.store import Store
from dodona.tools import index_follower
from dodona.tools.call import call_tool
from dodona.tools.registry import ToolRegistry
from dodona.tools.vault import MarkedBlocks, NoteHistory, ProjectNotes, Vault, add_vault_tools

LIMIT = 60.0  # seconds that a busy machine may take for what comes in a moment

_looks: list[str] = []


def _look(event: str, _arguments: object) -> None:
    if event == "os.fwalk":
        _looks.append(threading.current_thread().name)


sys.addaudithook(_look)


@contextmanager
def nobody_looks() -> Iterator[None]:
    """Through a folder, but for the thread that follows it."""
    _looks.clear()
    yield
    assert [name for name in _looks if not name.startswith("dodona-follow")] == []


class Garden:
    """A vault and what others do in its folder."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "vault"
        self.file = folder / "indexes" / "i.db"
        self.vault = Vault(self.root, self.file)

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    async def found(self, word: str) -> list[str]:
        return sorted({hit.path for hit in await self.vault.search(word, 9)})

    async def comes(self, word: str, *paths: str) -> None:
        """These notes are found by a word, after a moment."""
        async with asyncio.timeout(LIMIT):
            while await self.found(word) != list(paths):  # noqa: ASYNC110 - a thread finds them
                await asyncio.sleep(0.02)

    async def followed(self) -> None:
        self.vault.watch(FileWatcher())
        async with asyncio.timeout(LIMIT):
            while not self.vault.is_watched:  # noqa: ASYNC110 - a thread says so
                await asyncio.sleep(0.02)


@pytest.fixture
async def garden(tmp_path: Path) -> AsyncIterator[Garden]:
    made = Garden(tmp_path)
    made.write("a.md", "an oak")
    made.write("deep/b.md", "a birch")
    await made.followed()
    yield made
    await made.vault.close()


async def test_what_others_write(garden: Garden) -> None:
    """Edited, made, deleted, in folders old and new."""
    assert await garden.found("oak") == ["a.md"]  # caught up before it was followed
    with nobody_looks():
        garden.write("a.md", "an elm now")
        await garden.comes("elm", "a.md")
        assert await garden.found("oak") == []
        garden.write("new/folder/c.md", "an ash")
        await garden.comes("ash", "new/folder/c.md")
        garden.write("new/folder/d.md", "an ash too")
        await garden.comes("ash", "new/folder/c.md", "new/folder/d.md")
        (garden.root / "new" / "folder" / "c.md").unlink()
        await garden.comes("ash", "new/folder/d.md")


async def test_an_event_of_the_vault_itself_finds_all_changes(garden: Garden) -> None:
    """As rsync causes one, when it sets the time of the folder."""
    with nobody_looks():
        (garden.root / "deep" / "b.md").unlink()
        os.utime(garden.root)
        await garden.comes("birch")
        assert await garden.found("oak") == ["a.md"]


async def test_a_folder_that_is_renamed_or_removed(garden: Garden) -> None:
    """Its notes are found where they are, and are gone when it is."""
    with nobody_looks():
        (garden.root / "deep").rename(garden.root / "other")
        await garden.comes("birch", "other/b.md")
        garden.write("other/b.md", "a willow")
        await garden.comes("willow", "other/b.md")
        shutil.rmtree(garden.root / "other")
        await garden.comes("willow")
        assert [note.path for note in await garden.vault.list()] == ["a.md"]


async def test_a_folder_from_elsewhere_is_moved_in_and_out(garden: Garden, tmp_path: Path) -> None:
    """As when an archive is unpacked beside the vault."""
    outside = tmp_path / "outside"
    outside.mkdir()
    for n in range(9):
        (outside / f"{n:02}.md").write_text("a poplar")
    with nobody_looks():
        outside.rename(garden.root / "inside")
        await garden.comes("poplar", *(f"inside/{n:02}.md" for n in range(9)))
        (garden.root / "inside").rename(outside)
        await garden.comes("poplar")


async def test_what_we_write_is_known_at_once(garden: Garden) -> None:
    """Without a moment to wait."""
    with nobody_looks():
        await garden.vault.write("c.md", "a cedar [[a]]")
        assert await garden.found("cedar") == ["c.md"]
        assert [link.path for link in await garden.vault.backlinks("a.md")] == ["c.md"]


async def test_what_we_move_is_known_at_once(garden: Garden) -> None:
    """Nor here."""
    garden.write("c.md", "see [[a]]")
    await garden.vault.move("a.md", "trees/Oak.md")
    with nobody_looks():
        assert await garden.found("oak") == ["c.md", "trees/Oak.md"]
        assert [link.path for link in await garden.vault.backlinks("trees/Oak.md")] == ["c.md"]


@pytest.mark.parametrize("times", [1, 3])
async def test_an_index_that_is_deleted_meanwhile(garden: Garden, times: int) -> None:
    """Is made anew before the next answer, not at the next change."""
    for _ in range(times):
        assert await garden.found("oak") == ["a.md"]
        for file in garden.file.parent.iterdir():
            os.unlink(file)
        assert await garden.found("oak") == ["a.md"]
        assert garden.vault.is_watched
    garden.write("a.md", "an elm now")
    await garden.comes("elm", "a.md")


async def test_an_index_that_is_damaged_meanwhile(garden: Garden) -> None:
    """Likewise, whether its file is open or not."""
    for is_closed in (False, True):
        assert await garden.found("oak") == ["a.md"]
        if is_closed:
            await asyncio.to_thread(garden.vault.index.close)
        garden.file.write_bytes(b"\x5a" * 50_000)
        assert await garden.found("oak") == ["a.md"]
        assert await garden.found("irch") == ["deep/b.md"]


async def test_links_are_not_followed(garden: Garden, tmp_path: Path) -> None:
    """What is put in the place of a note or a folder leads nowhere."""
    (tmp_path / "secret.md").write_text("a secret oak")
    with nobody_looks():
        (garden.root / "link.md").symlink_to(tmp_path / "secret.md")
        (garden.root / "folder").symlink_to(tmp_path)
        (garden.root / "loop").symlink_to(garden.root)
        garden.write("z.md", "a zebra")
        await garden.comes("zebra", "z.md")
        assert await garden.found("secret") == []
        assert await garden.found("oak") == ["a.md"]


async def test_closed_it_follows_no_more(garden: Garden) -> None:
    """Its thread ends, and whoever asks again looks for themselves."""
    await garden.vault.close()
    assert not garden.vault.is_watched
    assert not [t for t in threading.enumerate() if t.name == "dodona-follow-vault"]
    garden.write("a.md", "an elm now")
    assert await garden.found("elm") == ["a.md"]


async def test_it_catches_up_at_the_start(tmp_path: Path) -> None:
    """With what was changed while nobody followed, before anybody asks."""
    first = Garden(tmp_path)
    first.write("a.md", "an oak")
    first.write("b.md", "a birch")
    assert await first.found("oak") == ["a.md"]
    await first.vault.close()
    first.write("a.md", "an elm now")
    (first.root / "b.md").unlink()
    second = Garden(tmp_path)
    await second.followed()
    with nobody_looks():
        assert (await second.found("elm"), await second.found("birch")) == (["a.md"], [])
    await second.vault.close()


async def test_many_notes_that_come_at_once_block_nobody(garden: Garden, tmp_path: Path) -> None:
    """They are taken in by batches: who writes meanwhile waits for one of them at most."""
    outside = tmp_path / "outside"
    outside.mkdir()
    for n in range(600):
        (outside / f"{n:03}.md").write_text(f"# {n}\n\na poplar")
    outside.rename(garden.root / "inside")
    await garden.vault.write("c.md", "a cedar")
    assert await garden.found("cedar") == ["c.md"]
    await garden.comes("599", "inside/599.md")
    assert len(await garden.vault.list("inside")) == 600


async def test_who_asks_while_changes_wait_is_told(
    garden: Garden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer comes after a bounded wait, and says what it may lack."""
    monkeypatch.setattr(index_follower, "CATCH_UP_SECONDS", 0.2)

    store = await Store.open(str(tmp_path / "store.db"), redact=str)
    notes = ProjectNotes(
        garden.vault,
        MarkedBlocks(store.note_marks, "ada", "vault"),
        NoteHistory(store.note_versions, "ada", "one"),
    )

    async def notes_of(_user_id: str, _project_id: str) -> ProjectNotes:
        return notes

    with closing(sqlite3.connect(garden.file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")  # another process writes to the index
        garden.write("a.md", "an elm now")
        async with asyncio.timeout(LIMIT):
            while not garden.vault.is_behind:  # noqa: ASYNC110 - time makes it so
                await asyncio.sleep(0.02)
        assert await garden.found("oak") == ["a.md"]
        registry = ToolRegistry()
        add_vault_tools(registry, notes_of)
        call = ToolCall("1", "vault_search", '{"query": "oak"}')
        context = ToolContext("ada", "one", "run/1")
        found = await call_tool(registry, call, agent="oracle", context=context)
        assert "[Recent changes are still being indexed. Ask again for them.]" in found.result.text
        other.execute("ROLLBACK")
    await garden.comes("elm", "a.md")
    await store.close()
    assert not garden.vault.is_behind
