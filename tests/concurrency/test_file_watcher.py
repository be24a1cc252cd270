"""Folders that are followed: what is saved is read, wherever it appears."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from pathlib import Path

import pytest

from dodona.concurrency.file_watcher import FileWatcher, list_files

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
