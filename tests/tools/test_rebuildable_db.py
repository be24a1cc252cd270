from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from dodona.core.errors import ToolFailed
from dodona.tools.rebuildable_db import DatabaseFormat, RebuildableDatabase, file_lock, transaction

LIMIT = 60.0  # seconds to wait for what comes at once
KIND = DatabaseFormat(
    "CREATE TABLE oaks (name TEXT);\nCREATE TABLE elms (name TEXT);\n", 0x4F414B53, 3
)


def add(name: str):
    return lambda db: db.execute("INSERT INTO oaks VALUES (?)", (name,)).rowcount


def names(db: sqlite3.Connection) -> list[str]:
    return [row[0] for row in db.execute("SELECT name FROM oaks ORDER BY name")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "indexes" / "oaks.db"


def test_it_is_made_and_kept(path: Path) -> None:
    """Its owner's alone, with what was put in."""
    first = RebuildableDatabase(path, KIND)
    first.run(add("a"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    first.close()
    second = RebuildableDatabase(path, KIND)
    assert second.run(names) == ["a"]
    second.close()


def test_a_thread_keeps_its_connection(path: Path) -> None:
    """And another has another."""
    file = RebuildableDatabase(path, KIND)
    mine = file.run(lambda db: db)
    assert file.run(lambda db: db) is mine
    theirs: list[sqlite3.Connection] = []
    thread = threading.Thread(target=lambda: theirs.append(file.run(lambda db: db)))
    thread.start()
    thread.join()
    assert theirs[0] is not mine
    file.close()


def test_another_process_does_not_remove_the_log(path: Path) -> None:
    """A thread that connects releases no lock: a process that closes the file is not the last."""
    file = RebuildableDatabase(path, KIND)
    file.run(add("a"))
    thread = threading.Thread(target=file.run, args=(names,))
    thread.start()
    thread.join()
    script = (
        "import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1])\n"
        "db.execute(\"INSERT INTO oaks VALUES ('b')\")\ndb.commit()\ndb.close()\n"
    )
    subprocess.run([sys.executable, "-c", script, path], check=True, timeout=LIMIT)  # noqa: S603
    assert path.with_name(f"{path.name}-wal").exists()
    file.run(add("c"))
    assert file.run(names) == ["a", "b", "c"]
    file.close()


def test_closing_waits_for_who_is_at_work(path: Path) -> None:
    """Nobody's connection is closed under them."""
    file = RebuildableDatabase(path, KIND)
    is_begun, may_end = threading.Event(), threading.Event()
    said: list[int] = []

    def work(db: sqlite3.Connection) -> None:
        is_begun.set()
        may_end.wait(LIMIT)
        said.append(add("a")(db))

    worker = threading.Thread(target=lambda: file.run(work))
    worker.start()
    assert is_begun.wait(LIMIT)
    closer = threading.Thread(target=file.close)
    closer.start()
    closer.join(0.05)
    assert closer.is_alive()
    may_end.set()
    closer.join(LIMIT)
    worker.join(LIMIT)
    assert said == [1]
    assert not closer.is_alive()
    assert file.run(names) == ["a"]
    file.close()


@pytest.mark.parametrize("how", ["removed", "damaged"])
def test_a_new_file_has_another_identity(path: Path, how: str) -> None:
    """Also where the number of a file that is gone is given to the next one."""
    file = RebuildableDatabase(path, KIND)
    for _ in range(5):
        file.run(add("a"))
        before = file.identity()
        if how == "removed":
            os.unlink(path)
        else:
            file.discard()
        assert file.run(names) == []
        assert file.identity() != before
    file.close()


@pytest.mark.parametrize("at", [0, 100, 4096])
def test_a_damaged_file_is_made_anew(path: Path, at: int) -> None:
    """Whether it is noticed when it is opened, or when it is read."""
    file = RebuildableDatabase(path, KIND)
    file.run(add("a"))
    file.close()
    with path.open("r+b") as opened:
        opened.seek(at)
        opened.write(b"\xff" * 4096)
    again = RebuildableDatabase(path, KIND)
    assert again.run(names) == []
    assert again.run(add("b")) == 1
    assert again.run(names) == ["b"]
    again.close()


def test_another_version_is_made_anew(path: Path) -> None:
    """Nothing is migrated: it can be made again."""
    old = RebuildableDatabase(path, KIND)
    old.run(add("a"))
    old.close()
    new = RebuildableDatabase(path, replace(KIND, version=4))
    assert new.run(names) == []
    new.close()


def test_another_program_is_left_alone(path: Path) -> None:
    """Its database is not ours to throw away."""
    path.parent.mkdir()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(ToolFailed, match="of another program"):
        RebuildableDatabase(path, KIND).run(names)
    assert path.read_bytes() == before


def test_who_has_an_old_file_open_gets_the_new_one(path: Path) -> None:
    """One process throws it away, the other goes on with what the first made."""
    one, other = RebuildableDatabase(path, KIND), RebuildableDatabase(path, KIND)
    one.run(add("old"))
    assert other.run(names) == ["old"]
    one.discard()
    one.run(add("new"))
    assert other.run(names) == ["new"]
    other.run(add("also"))
    assert one.run(names) == ["also", "new"]
    one.close()
    other.close()


def test_a_file_that_was_removed_is_made_anew(path: Path) -> None:
    """Somebody emptied the folder."""
    file = RebuildableDatabase(path, KIND)
    file.run(add("a"))
    os.unlink(path)
    assert file.run(names) == []
    file.close()


def test_many_open_it_at_once(path: Path) -> None:
    """It is made once, and everybody's row is in it."""
    count = 8
    barrier = threading.Barrier(count)
    file = RebuildableDatabase(path, KIND)

    def work(number: int) -> None:
        barrier.wait()
        file.run(add(f"{number}"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert file.run(names) == [str(number) for number in range(count)]
    file.close()


def test_a_transaction_is_all_or_nothing(path: Path) -> None:
    """What raises leaves no trace."""
    file = RebuildableDatabase(path, KIND)

    def half(db: sqlite3.Connection) -> None:
        with transaction(db):
            add("a")(db)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        file.run(half)
    assert file.run(names) == []
    file.close()


def test_a_lock_is_one_holder_s(tmp_path: Path) -> None:
    """Who does not want to wait is told at once."""
    with (
        file_lock(tmp_path / "lock"),
        pytest.raises(BlockingIOError),
        file_lock(tmp_path / "lock", timeout=0.0),
    ):
        pass
    with file_lock(tmp_path / "lock", timeout=0.0):
        pass
