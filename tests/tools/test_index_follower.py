"""Folders that are followed, on a real file system: what is told, when, and how it ends."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath

import pytest

from dodona.concurrency.file_watcher import FileWatcher
from dodona.core.errors import ToolFailed
from dodona.tools import index_follower
from dodona.tools.index_follower import IndexFollower

LIMIT = 60.0  # seconds that a busy machine may take for what comes in a moment


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


class Told:
    """What a follower told; `None` is to look at everything."""

    def __init__(self, *roots: Path) -> None:
        self.roots = roots
        self.all = 0
        self.paths: set[str] = set()
        self.failures = 0

    def take(self, changed: Sequence[PurePath] | None, _stop: threading.Event) -> None:
        if self.failures:
            self.failures -= 1
            raise ToolFailed("not now.")
        if changed is None:
            self.all += 1
        else:
            self.paths |= {path.relative_to(self.roots[0].parent).as_posix() for path in changed}

    @contextmanager
    def watching(self) -> Iterator[IndexFollower]:
        follower = IndexFollower(
            FileWatcher(),
            self.roots,
            self.take,
            path_filter=lambda path: not path.name.startswith("."),
            label="garden",
        )
        try:
            yield follower
        finally:
            follower.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


def threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name == "dodona-follow-garden"]


def test_everything_is_looked_at_once_and_then_what_changes(root: Path) -> None:
    """Made, changed, moved and deleted, in folders that came since; of a move both ends."""
    told = Told(root)
    with told.watching() as follower:
        until(lambda: follower.is_up_to_date)
        assert (told.all, told.paths) == (1, set())
        (root / "a.md").write_text("oak")
        until(lambda: told.paths >= {"root/a.md"})
        (root / "deep" / "er").mkdir(parents=True)
        until(lambda: told.paths & {"root/deep", "root/deep/er"})
        (root / "deep" / "er" / "b.md").write_text("elm")
        until(lambda: told.paths & {"root/deep/er/b.md"})
        told.paths.clear()
        (root / "deep").rename(root / "new")
        until(lambda: told.paths >= {"root/deep", "root/new"})
        (root / "new" / "er" / "b.md").unlink()
        until(lambda: told.paths >= {"root/new/er/b.md"})
        assert told.all == 1


def test_several_folders_are_followed_as_one(root: Path) -> None:
    """What changes in any of them is told."""
    other = root.parent / "other"
    other.mkdir()
    told = Told(root, other)
    with told.watching() as follower:
        until(lambda: follower.is_up_to_date)
        (root / "a.md").write_text("oak")
        (other / "b.md").write_text("elm")
        until(lambda: told.paths >= {"root/a.md", "other/b.md"})


def test_what_does_not_matter_is_not_told(root: Path) -> None:
    """A file that others write for themselves wakes nobody."""
    told = Told(root)
    with told.watching() as follower:
        until(lambda: follower.is_up_to_date)
        (root / ".hidden").write_text("x")
        (root / "seen").write_text("x")
        until(lambda: told.paths)
        (root / "also").write_text("x")
        until(lambda: "root/also" in told.paths)
        assert told.paths == {"root/seen", "root/also"}


def test_closing_ends_the_thread(root: Path) -> None:
    """Whether it waits, or is at work: then what it does is told to stop."""
    with Told(root).watching() as follower:
        until(lambda: follower.is_up_to_date)
        assert threads() == ["dodona-follow-garden"]
    assert threads() == []
    assert not follower.is_up_to_date
    is_begun = threading.Event()

    def take(_changed: Sequence[PurePath] | None, stop: threading.Event) -> None:
        is_begun.set()
        assert stop.wait(LIMIT)

    follower = IndexFollower(
        FileWatcher(), [root], take, path_filter=lambda _: True, label="garden"
    )
    assert is_begun.wait(LIMIT)
    follower.close()
    assert threads() == []


def test_a_folder_that_comes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Until then nothing is followed; it is tried again, and told in the log once."""
    monkeypatch.setattr(index_follower, "RETRY_SECONDS", 0.01)
    root = tmp_path / "root"
    told = Told(root)
    with told.watching() as follower:
        until(lambda: caplog.records)
        time.sleep(0.05)  # for more tries
        assert (follower.is_up_to_date, told.all) == (False, 0)
        root.mkdir()
        until(lambda: follower.is_up_to_date)
        (root / "a.md").write_text("oak")
        until(lambda: told.paths == {"root/a.md"})
    assert [record.getMessage() for record in caplog.records] == [
        "cannot watch the garden; it is scanned before each use instead: "
        f"[Errno 2] No such file or directory: '{root}'"
    ]


def test_a_folder_that_is_replaced_by_another(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new one is looked at as a whole and followed: a folder is what has its name."""
    monkeypatch.setattr(index_follower, "RETRY_SECONDS", 0.01)
    told = Told(root)
    with told.watching() as follower:
        until(lambda: follower.is_up_to_date)
        root.rename(root.parent / "old")
        root.mkdir()
        until(lambda: told.all == 2)
        until(lambda: follower.is_up_to_date)
        told.paths.clear()
        (root / "a.md").write_text("oak")
        until(lambda: "root/a.md" in told.paths)


def test_what_could_not_be_taken_in_is_looked_at_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a whole: nobody knows what was done of it."""
    monkeypatch.setattr(index_follower, "RETRY_SECONDS", 0.01)
    told = Told(root)
    with told.watching() as follower:
        until(lambda: follower.is_up_to_date)
        told.failures = 2
        (root / "a.md").write_text("oak")
        until(lambda: told.all == 2)
        assert (told.failures, told.paths) == (0, set())


UNWATCHABLE = """
import asyncio, logging, os, resource, sys, time
from pathlib import Path
from dodona.concurrency.file_watcher import FileWatcher
from dodona.tools.vault import Vault

folder = Path(sys.argv[1])
notices = []
logging.getLogger("dodona.tools.index_follower").addHandler(
    type("Kept", (logging.Handler,), {"emit": lambda _, record: notices.append(record.msg)})()
)

async def main():
    vault = Vault(folder / "vault", folder / "index.db")
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
    taken = []
    try:
        while True:
            taken.append(os.dup(0))
    except OSError:
        pass
    vault.watch(FileWatcher())
    while not notices:
        await asyncio.sleep(0.01)
    for file in taken:
        os.close(file)
    (folder / "vault" / "a.md").write_text("an oak")
    print(vault.is_watched, [hit.path for hit in await vault.search("oak", 5)], len(notices))
    await vault.close()

asyncio.run(main())
"""


def test_a_folder_that_cannot_be_watched(root: Path) -> None:
    """The system has no more watches: the notes are looked through before they are searched."""
    (root / "vault").mkdir()
    done = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, "-c", UNWATCHABLE, str(root)],
        capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("False ['a.md'] 1\n", "")
