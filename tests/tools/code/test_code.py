"""A project's code in a program: kept up to date while it is asked, followed, cancelled, closed."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dodona.concurrency.file_watcher import FileWatcher
from dodona.core.domain.knowledge.code import IndexProgress
from dodona.core.errors import ToolFailed, ToolRetry, as_text
from dodona.tools import index_follower
from dodona.tools.code import IndexedCode, NoCode
from dodona.tools.code import code as module
from dodona.tools.rebuildable_db import file_lock

LONG = 40.0


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "a.py").write_text("def alpha():\n    pass\n", encoding="utf-8")
    return folder


@pytest.fixture
async def code(tmp_path: Path, root: Path) -> AsyncIterator[IndexedCode]:
    made = IndexedCode([root], tmp_path / "indexes" / "code.db")
    yield made
    await made.close()


def fill(root: Path, count: int = 1_000) -> None:
    for number in range(count):
        (root / f"f{number:04}.py").write_text(f"beta{number} = 1\n", encoding="utf-8")


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONG):
        while not holds():  # noqa: ASYNC110 - another thread makes it true
            await asyncio.sleep(0.02)


_listing: list[list[str]] = []


def _note_listing(event: str, _arguments: object) -> None:
    if event == "os.scandir" and threading.current_thread().name == "dodona-follow-code":
        for listed in _listing:
            listed.append(event)


sys.addaudithook(_note_listing)


@contextmanager
def folders_listed() -> Iterator[list[str]]:
    """What the thread that follows the code lists meanwhile."""
    listed: list[str] = []
    _listing.append(listed)
    yield listed
    _listing.remove(listed)


async def names(code: IndexedCode, query: str) -> list[str]:
    return [hit.path for hit in await code.search(query, 5)]


async def until_found(code: IndexedCode, query: str, paths: list[str]) -> None:
    async with asyncio.timeout(LONG):
        while await names(code, query) != paths:  # noqa: ASYNC110 - another thread takes it in
            await asyncio.sleep(0.05)


async def test_the_first_question_makes_the_index(code: IndexedCode) -> None:
    """Nobody has to ask for it."""
    assert await names(code, "alpha") == ["a.py"]
    assert [each.path for each in await code.definitions("alpha", 5)] == ["a.py"]
    assert (await code.state()).is_complete


async def test_a_change_is_seen_by_the_next_question(
    code: IndexedCode, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When what is known has grown old; until then the folder is not looked at again."""
    assert await names(code, "alpha") == ["a.py"]
    (root / "b.py").write_text("def gamma():\n    pass\n", encoding="utf-8")
    assert await names(code, "gamma") == []
    monkeypatch.setattr(module, "REFRESH_INTERVAL_SECONDS", 0.0)
    await code.refresh()
    (root / "c.py").write_text("def delta():\n    pass\n", encoding="utf-8")
    assert await names(code, "delta") == ["c.py"]


async def test_a_question_does_not_wait_for_long(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is answered from what is there, and says so, while the index is made by another."""
    fill(root)
    monkeypatch.setattr(module, "REFRESH_TIMEOUT_SECONDS", 0.0)
    first = IndexedCode([root], tmp_path / "code.db")
    second = IndexedCode([root], tmp_path / "code.db")
    reached, go_on = threading.Event(), threading.Event()

    def hold(now: IndexProgress) -> None:
        if now.done:
            reached.set()
            go_on.wait(LONG)

    making = asyncio.create_task(first.refresh(hold))
    await until(reached.is_set)
    assert await names(second, "alpha") == ["a.py"]
    state = await second.state()
    assert (state.is_complete, 0 < state.files < 1_001) == (False, True)
    go_on.set()
    assert (await making).files == 1_001
    assert (await second.state()).is_complete
    await first.close()
    await second.close()


async def test_who_cancels_keeps_what_is_done(code: IndexedCode, root: Path) -> None:
    """It ends soon, and goes on from there."""
    fill(root)
    reached = threading.Event()

    def tell(now: IndexProgress) -> None:
        if now.done:
            reached.set()

    making = asyncio.create_task(code.refresh(tell))
    await until(reached.is_set)
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    state = await code.state()
    if state.files < 1_001:
        assert not state.is_complete
    after = await code.refresh()
    assert (after.files, after.is_complete) == (1_001, True)
    assert after.indexed == 1_001 - state.files


async def test_folders_are_followed(code: IndexedCode, root: Path) -> None:
    """What changes is taken in without a question; what is ignored is not looked at."""
    code.watch(FileWatcher())
    await until(lambda: code.is_watched)
    (root / "b.py").write_text("def gamma():\n    pass\n", encoding="utf-8")
    await until_found(code, "gamma", ["b.py"])
    (root / "b.py").unlink()
    await until_found(code, "gamma", [])
    code.watch(FileWatcher())
    await code.close()
    assert not code.is_watched


async def test_only_what_changed_is_looked_at(code: IndexedCode, root: Path) -> None:
    """A change in one folder reads no other folder; one of the ignore rules reads theirs again."""
    for name in ("one", "two"):
        (root / name).mkdir()
        (root / name / "x.py").write_text(f"def {name}():\n    pass\n", encoding="utf-8")
    code.watch(FileWatcher())
    await until(lambda: code.is_watched)
    with folders_listed() as listed:
        (root / "one" / "x.py").write_text("def uno():\n    pass\n", encoding="utf-8")
        await until_found(code, "uno", ["one/x.py"])
        assert listed == []
        (root / "one").rename(root / "three")
        await until_found(code, "uno", ["three/x.py"])
        (root / "two" / ".gitignore").write_text("x.py\n", encoding="utf-8")
        await until_found(code, "two", [])
        (root / "two" / ".gitignore").unlink()
        await until_found(code, "two", ["two/x.py"])
        (root / ".gitignore").write_text("three/\n", encoding="utf-8")
        await until_found(code, "uno", [])
        assert await names(code, "alpha") == ["a.py"]


async def test_an_index_that_is_made_anew_while_it_is_followed(
    code: IndexedCode, tmp_path: Path, root: Path
) -> None:
    """The next change finds it empty, and all files are taken in again."""
    code.watch(FileWatcher())
    await until(lambda: code.is_watched)
    for file in (tmp_path / "indexes").iterdir():
        file.unlink()
    (root / "b.py").write_text("def gamma():\n    pass\n", encoding="utf-8")
    await until_found(code, "gamma", ["b.py"])
    assert await names(code, "alpha") == ["a.py"]


async def test_who_asks_while_changes_wait_is_told(
    code: IndexedCode, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer comes after a bounded wait, and says that the index is not complete."""
    monkeypatch.setattr(index_follower, "CATCH_UP_SECONDS", 0.2)
    code.watch(FileWatcher())
    await until(lambda: code.is_watched)
    with file_lock(next((root.parent / "indexes").glob("*.taking"))):  # another process writes
        (root / "b.py").write_text("def gamma():\n    pass\n", encoding="utf-8")
        await until(lambda: not code.is_watched)
        async with asyncio.timeout(LONG):
            while (await code.state()).is_complete:  # noqa: ASYNC110 - time makes it so
                await asyncio.sleep(0.02)
        assert await names(code, "gamma") == []
    await until_found(code, "gamma", ["b.py"])
    assert (await code.state()).is_complete


async def test_it_begins_from_nothing(code: IndexedCode) -> None:
    """A rebuild takes in again what was there."""
    await code.refresh()
    assert (await code.refresh()).indexed == 0
    assert (await code.rebuild()).indexed == 1


async def test_two_programs_use_one_index(code: IndexedCode, tmp_path: Path, root: Path) -> None:
    """Each sees what the other has taken in; one may make it anew under the other."""
    other = IndexedCode([root], tmp_path / "indexes" / "code.db")
    assert (await code.refresh()).indexed == 1
    assert (await other.refresh()).unchanged == 1
    (root / "b.py").write_text("def gamma():\n    pass\n", encoding="utf-8")
    await other.rebuild()
    assert await names(code, "gamma") == ["b.py"]
    await other.close()


async def test_a_disk_that_fails_is_told_without_its_paths(
    tmp_path: Path, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The model cannot mend it; who runs Dodona finds it in the log."""
    (tmp_path / "blocked").write_text("a file", encoding="utf-8")
    code = IndexedCode([root], tmp_path / "blocked" / "code.db")
    with pytest.raises(ToolFailed) as caught:
        await code.refresh()
    assert as_text(caught.value) == "the code is unavailable: File exists."
    with caplog.at_level(logging.WARNING), pytest.raises(ToolFailed):
        await code.search("alpha", 1)
    assert "the code index is not up to date" in caplog.text
    await code.close()


async def test_no_code() -> None:
    """It answers with nothing, as an empty folder would; to read from it is a mistake."""
    none = NoCode()
    assert await none.search("x", 1) == []
    assert await none.definitions("x", 1) == []
    assert await none.references("x", 1) == []
    assert await none.repo_map(100) == ""
    assert await none.versions(("x",)) == {}
    assert (await none.refresh()).files == (await none.state()).files == 0
    with pytest.raises(ToolRetry) as caught:
        await none.read("x")
    assert (
        as_text(caught.value) == "this project has no code folders. Add one with: dodona index PATH"
    )
