"""Folders that are followed: what is saved is read, wherever it appears."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path, PurePath

import pytest

from dodona.concurrency import file_watcher
from dodona.concurrency.file_watcher import FileWatcher, TreeWatch, list_files

pytestmark = pytest.mark.slow  # the file system takes its time

LIMIT = 20.0


class Reader:
    """Reads the folders, as whoever follows them would."""

    def __init__(self, *folders: Path) -> None:
        self.folders = folders
        self.texts: list[str] = []
        self.times = 0
        self.stirred, self.loop = asyncio.Event(), asyncio.get_running_loop()

    def reload(self) -> None:
        texts: list[str] = []
        for file in list_files(self.folders):
            with suppress(FileNotFoundError):  # it may go just now
                texts.append(file.read_text())
        self.texts = texts
        self.times += 1
        self.loop.call_soon_threadsafe(self.stirred.set)

    def watching(
        self, reload: Callable[[], None] | None = None
    ) -> AbstractAsyncContextManager[None]:
        work = partial(asyncio.to_thread, reload or self.reload)
        return FileWatcher().watch_files(lambda: self.folders, work)

    async def until(self, is_so: Callable[[list[str]], bool]) -> None:
        async with asyncio.timeout(LIMIT):
            while not is_so(self.texts):
                await self.stirred.wait()
                self.stirred.clear()


def test_files_are_those_of_each_folder_by_name(tmp_path: Path) -> None:
    """Folder by folder; others, links into nowhere and missing folders are passed over."""
    for name in ("one/b.toml", "one/a.toml", "one/c.txt", "packs/x/s/x.toml", "packs/a/s/y.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "one/folder.toml").mkdir()
    (tmp_path / "one/gone.toml").symlink_to(tmp_path / "nowhere")
    (tmp_path / "packs/file").write_text("")
    folders = (tmp_path / "packs/*/s", tmp_path / "missing", tmp_path / "one")
    assert [str(file.relative_to(tmp_path)) for file in list_files(folders)] == [
        "packs/a/s/y.toml", "packs/x/s/x.toml", "one/a.toml", "one/b.toml",
    ]  # fmt: skip


async def test_what_was_there_is_read_before_anything_else(tmp_path: Path) -> None:
    """Nothing that was saved before is missed."""
    (tmp_path / "a.toml").write_text("a")
    reader = Reader(tmp_path)
    async with reader.watching():
        assert reader.texts == ["a"]


async def test_files_that_come_change_and_go_are_followed(tmp_path: Path) -> None:
    """Also one that an editor saves by renaming."""
    reader = Reader(tmp_path)
    async with reader.watching():
        (tmp_path / "a.toml").write_text("one")
        await reader.until(lambda texts: texts == ["one"])
        (tmp_path / "draft").write_text("two")
        (tmp_path / "draft").replace(tmp_path / "a.toml")
        await reader.until(lambda texts: texts == ["two"])
        (tmp_path / "a.toml").unlink()
        await reader.until(lambda texts: texts == [])


async def test_a_folder_may_come_later_and_go_and_come_again(tmp_path: Path) -> None:
    """However deep it is."""
    folder = tmp_path / "not" / "yet" / "there"
    reader = Reader(folder)
    async with reader.watching():
        for text in ("first", "second"):
            folder.mkdir(parents=True)
            (folder / "a.toml").write_text(text)
            await reader.until(lambda texts, text=text: texts == [text])
            (folder / "a.toml").unlink()
            folder.rmdir()
            folder.parent.rmdir()
            await reader.until(lambda texts: texts == [])


async def test_folders_of_any_name_are_followed(tmp_path: Path) -> None:
    """A pack that is put in place while we run."""
    reader = Reader(tmp_path / "packs" / "*" / "rules")
    async with reader.watching():
        for name in ("one", "two"):
            (tmp_path / "packs" / name / "rules").mkdir(parents=True)
            (tmp_path / "packs" / name / "rules" / "a.toml").write_text(name)
        await reader.until(lambda texts: texts == ["one", "two"])
        (tmp_path / "packs/one").rename(tmp_path / "elsewhere")
        await reader.until(lambda texts: texts == ["two"])


async def test_what_is_none_of_our_files_is_passed_over(tmp_path: Path) -> None:
    """Nothing is read again for it."""
    folder = tmp_path / "folder"
    folder.mkdir()
    reader = Reader(folder)
    async with reader.watching():
        before = reader.times
        (tmp_path / "beside.toml").write_text("")
        (folder / "notes.md").write_text("")
        (folder / "a.toml").write_text("a")
        await reader.until(lambda texts: texts == ["a"])
        assert reader.times <= before + 2  # the file may be seen empty first


async def test_a_reader_that_fails_is_asked_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its bug is logged, and the next change is taken in."""
    reader = Reader(tmp_path)

    def reload() -> None:
        if not list_files([tmp_path]):
            raise ValueError("a bug")
        reader.reload()

    async with reader.watching(reload):
        assert caplog.messages == ["changed files could not be reloaded"]
        (tmp_path / "a.toml").write_text("a")
        await reader.until(lambda texts: texts == ["a"])


# -- folder trees ----------------------------------------------------------------------------------


class Reports:
    """What a tree watch has reported; `None` is that changes were missed."""

    def __init__(self) -> None:
        self.paths: set[str] = set()
        self.missed = 0

    def add(self, paths: set[PurePath] | None) -> None:
        if paths is None:
            self.missed += 1
        else:
            self.paths |= {path.name for path in paths}

    def until(self, *names: str) -> None:
        until(lambda: self.paths >= set(names))


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def watched_folders() -> set[int]:
    """The inode numbers of the folders that the system watches for this process."""
    found: set[int] = set()
    for info in Path("/proc/self/fdinfo").iterdir():
        with suppress(OSError):
            lines = info.read_text().splitlines()
            found |= {int(line.split()[2][4:], 16) for line in lines if line.startswith("inotify")}
    return found


def wake_ups() -> int:
    """How often the threads that wait for events of the system have been woken."""
    total = 0
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            if "notify" in (task / "comm").read_text():
                text = (task / "status").read_text()
                total += int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return total


@contextmanager
def watching(
    watcher: FileWatcher, root: Path, accept: Callable[[PurePath], bool] = lambda _: True
) -> Iterator[Reports]:
    reports = Reports()
    watch = watcher.watch_tree([root], reports.add, accept)
    try:
        yield reports
    finally:
        watcher.remove(watch)


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is of Linux")
def test_a_folder_that_we_write_to_is_not_watched(tmp_path: Path) -> None:
    """A vault around the database: 200 commits wake no thread, and notes are seen all the same."""
    home, notes = tmp_path / "home", tmp_path / "home" / "notes"
    notes.mkdir(parents=True)
    (home / "indexes").mkdir()
    watcher = FileWatcher([home, home / "indexes"])
    with closing(sqlite3.connect(home / "dodona.db", isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE t (x)")
        with watching(watcher, home, lambda path: path.suffix != ".db-wal") as reports:
            assert home.stat().st_ino not in watched_folders()
            assert (home / "indexes").stat().st_ino not in watched_folders()
            assert notes.stat().st_ino in watched_folders()
            before = wake_ups()
            for number in range(200):
                db.execute("INSERT INTO t VALUES (?)", (number,))
            assert wake_ups() - before <= 2
            (home / "top.md").write_text("a")
            (notes / "deep.md").write_text("b")
            reports.until("top.md", "deep.md")


def test_a_folder_beside_the_database_comes_and_goes(tmp_path: Path) -> None:
    """It cannot be added to a watch: the watch ends, and whoever asked begins again."""
    watcher = FileWatcher([tmp_path])
    with watching(watcher, tmp_path) as reports:
        (tmp_path / "new").mkdir()
        until(lambda: reports.missed)
    with watching(watcher, tmp_path) as reports:
        (tmp_path / "new" / "a.md").write_text("a")
        reports.until("a.md")
        assert not reports.missed


def test_a_replaced_folder_ends_the_watch(tmp_path: Path) -> None:
    """Also within a folder that is polled, and if its new inode has the old number."""
    vault, staged = tmp_path / "vault", tmp_path / "staged"
    for folder in (vault / "notes", vault / ".dodona", staged):
        folder.mkdir(parents=True)
    watcher = FileWatcher([vault / ".dodona"])
    with watching(watcher, vault) as reports:
        (vault / "notes").rename(tmp_path / "old")
        staged.rename(vault / "notes")
        until(lambda: reports.missed)
    with watching(FileWatcher(), vault) as reports:
        shutil.rmtree(vault)
        vault.mkdir()
        until(lambda: reports.missed)


def test_removing_the_last_watch_does_not_wait_for_one_that_is_added_meanwhile(
    tmp_path: Path,
) -> None:
    """The new one keeps the thread alive, maybe until this process ends."""
    watcher = FileWatcher()
    first = watcher.watch_tree([tmp_path], lambda _: None, lambda _: True)
    added: list[TreeWatch] = []

    class AddOnWake(threading.Event):
        """Adds a watch between the removal and the moment when the thread looks."""

        def set(self) -> None:
            if not added:
                added.append(TreeWatch([tmp_path], lambda _: None, lambda _: True, ()))
                watcher._add(added[0])
            super().set()

    watcher._wake = AddOnWake()
    removal = threading.Thread(target=watcher.remove, args=(first,), daemon=True)
    removal.start()
    removal.join(LIMIT)
    assert not removal.is_alive()
    watcher.remove(added[0])


def test_so_many_changes_that_some_may_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system may have dropped some without a word, so the watch ends."""
    monkeypatch.setattr(file_watcher, "MAX_CHANGES", 50)
    with watching(FileWatcher(), tmp_path) as reports:
        for number in range(500):
            (tmp_path / f"{number}.md").write_text("")
        until(lambda: reports.missed)


def test_a_new_folder_is_looked_at_twice(tmp_path: Path) -> None:
    """A file may be there before the folder is watched: who looks again finds it."""
    reported: list[set[PurePath] | None] = []
    watcher = FileWatcher()
    watch = watcher.watch_tree([tmp_path], reported.append, lambda _: True)
    (tmp_path / "new").mkdir()
    until(lambda: reported.count({tmp_path / "new"}) == 2)
    watcher.remove(watch)


def test_one_thread_for_all_until_the_last_is_removed(tmp_path: Path) -> None:
    """However many folders are watched."""

    def threads() -> int:
        return sum(t.name == "dodona-file-watcher" for t in threading.enumerate())

    watcher = FileWatcher()
    with watching(watcher, tmp_path) as first, watching(watcher, tmp_path) as second:
        assert threads() == 1
        (tmp_path / "a.md").write_text("a")
        first.until("a.md")
        second.until("a.md")
    until(lambda: threads() == 0)
    with watching(watcher, tmp_path) as again:
        (tmp_path / "b.md").write_text("b")
        again.until("b.md")


async def test_files_that_are_named_later_are_followed(tmp_path: Path) -> None:
    """Which files matter may itself depend on a file."""
    names = ["a"]
    times = 0

    async def reload() -> None:
        nonlocal times
        times += 1

    def files() -> list[Path]:
        return [tmp_path / name for name in names]

    async with FileWatcher().watch_files(files, reload), asyncio.timeout(LIMIT):
        for name in ("a", "b"):
            names.append(name)
            before = times
            (tmp_path / name).write_text("x")
            while times == before:  # noqa: ASYNC110 - a thread sees it
                await asyncio.sleep(0.01)
