"""A process lives as long as it holds its lock; the system lets go of it when it dies."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from dodona.core.errors import StoreError
from dodona.store.db.owners import FileOwners, advisory_key, describe_owner, new_owner

NO_TX: Any = None  # a look at a file needs no transaction


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "dodona.db-owners"


def test_a_name_is_never_used_twice() -> None:
    """It tells host and process, and is told in words."""
    names = {new_owner() for _ in range(100)}
    assert len(names) == 100
    host = re.escape(socket.gethostname())
    assert all(re.fullmatch(rf"{host}:{os.getpid()}:[0-9a-f]{{8}}", name) for name in names)
    assert describe_owner(names.pop()) == f"process {os.getpid()} on {socket.gethostname()}"


def test_a_process_lives_until_it_closes(folder: Path) -> None:
    """It sees itself, others see it, and after that nobody does."""
    first, second = FileOwners(folder), FileOwners(folder)
    for one in (first, second):
        assert one.is_alive(first.current, NO_TX)
        assert one.is_alive(second.current, NO_TX)
        assert one.describe_others() == [f"process {os.getpid()} on {socket.gethostname()}"]
    first.close()
    assert not second.is_alive(first.current, NO_TX)
    assert second.describe_others() == []
    second.close()
    assert not folder.exists()


def test_whoever_never_was_does_not_live(folder: Path) -> None:
    mine = FileOwners(folder)
    assert not mine.is_alive("oak:1:00000000", NO_TX)
    mine.close()


def test_a_killed_process_is_seen_to_be_dead(folder: Path) -> None:
    """And what it left is swept away."""
    script = (
        "import sys, pathlib\n"
        "from dodona.store.db.owners import FileOwners\n"
        "print(FileOwners(pathlib.Path(sys.argv[1])).current, flush=True)\n"
        "sys.stdin.read()\n"
    )
    mine = FileOwners(folder)
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", script, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        name = other.stdout.readline().strip()
        assert mine.is_alive(name, NO_TX)
        assert mine.describe_others() == [f"process {other.pid} on {socket.gethostname()}"]
        other.kill()
        other.wait(10)
    assert not mine.is_alive(name, NO_TX)
    assert [file.name for file in folder.iterdir()] == [mine.current]
    mine.close()


def test_a_file_that_nobody_holds_is_swept_away(folder: Path) -> None:
    """Also when a process starts after a crash of all."""
    folder.mkdir()
    (folder / "oak:4242:0badcafe").touch()
    mine = FileOwners(folder)
    assert [file.name for file in folder.iterdir()] == [mine.current]
    mine.close()


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError) as error:
        FileOwners(tmp_path / "file" / "owners")
    assert str(error.value) == (
        f"cannot lock {tmp_path / 'file' / 'owners'}: Not a directory. "
        "The store's folder must be writable, and on a local disk."
    )


def test_processes_come_and_go_while_others_look(folder: Path) -> None:
    """Whoever has started lives, however many look at its file at that very moment."""
    watcher = FileOwners(folder)
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            watcher.describe_others()

    lookers = [threading.Thread(target=look) for _ in range(3)]
    for looker in lookers:
        looker.start()
    try:
        for _ in range(60):
            one = FileOwners(folder)
            alive = watcher.is_alive(one.current, NO_TX)
            one.close()
            assert alive
    finally:
        stop.set()
        for looker in lookers:
            looker.join()
    watcher.close()
    assert not folder.exists()


def test_the_folder_comes_and_goes_with_them(folder: Path) -> None:
    """The last one out removes it while the next one comes in."""
    failed: list[StoreError] = []

    def come_and_go() -> None:
        try:
            for _ in range(300):
                FileOwners(folder).close()
        except StoreError as error:
            failed.append(error)

    guests = [threading.Thread(target=come_and_go) for _ in range(4)]
    for guest in guests:
        guest.start()
    for guest in guests:
        guest.join()
    assert failed == []
    assert not folder.exists()


def test_a_locks_number_fits_a_signed_integer() -> None:
    """Of 64 bits, the same in every process, another for another name."""
    keys = {advisory_key(f"oak:{number}:00000000") for number in range(1000)}
    assert len(keys) == 1000
    assert all(-(2**63) <= key < 2**63 for key in keys)
    assert advisory_key("oak:1:00000000") == advisory_key("oak:1:00000000")
    script = (
        "from dodona.store.db.owners import advisory_key; print(advisory_key('oak:1:00000000'))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)  # noqa: S603
    assert int(done.stdout) == advisory_key("oak:1:00000000")
