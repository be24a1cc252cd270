"""How an index is brought up to date, whatever happens to it and to the files meanwhile."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dodona.core.domain.knowledge.code import IndexProgress
from dodona.core.errors import ToolFailed
from dodona.tools.code.files.folders import CodeFolders
from dodona.tools.code.index.index import CodeIndex
from tests.tools.code.repository import Repository


def test_only_what_changed_is_taken_in(code: Repository) -> None:
    """By stamp, then by content; what is gone is dropped."""
    code.write("a.py", "def alpha(): pass\n")
    code.write("b.py", "def beta(): pass\n")
    assert code.counts() == (2, 0, 0, 0)
    assert code.counts() == (0, 2, 0, 0)
    code.write("a.py", "def gamma(): pass\n")
    os.utime(code.root / "b.py", ns=(5, 5))
    assert code.counts() == (1, 1, 0, 0)
    assert (code.found("alpha"), code.found("gamma")) == ([], ["a.py"])
    (code.root / "b.py").unlink()
    assert code.counts() == (0, 1, 1, 0)
    assert code.found("beta") == []
    os.rename(code.root / "a.py", code.root / "c.py")
    assert code.counts() == (1, 0, 1, 0)
    assert code.found("gamma") == ["c.py"]


def test_a_change_under_the_same_stamp_is_noticed(code: Repository) -> None:
    """A file that was changed just before it was read may be changed again in the same tick."""
    place = code.root / "a.py"
    stamp = time.time_ns() + 60 * 10**9  # just before it is read, however long that takes
    for text in ("alpha = 1\n", "gamma = 1\n"):
        place.write_text(text, encoding="utf-8")
        os.utime(place, ns=(stamp, stamp))
        code.refresh()
    assert code.found("gamma") == ["a.py"]


def test_a_file_swapped_for_another_is_noticed(code: Repository) -> None:
    """Of the same size and time: it is another file."""
    place = code.write("a.py", "alpha = 1\n")
    code.refresh()
    other = code.root.parent / "other.py"
    other.write_text("gamma = 1\n", encoding="utf-8")
    found = place.stat()
    os.utime(other, ns=(found.st_mtime_ns, found.st_mtime_ns))
    os.replace(other, place)
    code.refresh()
    assert code.found("gamma") == ["a.py"]


def test_what_is_not_text_is_skipped_once(code: Repository) -> None:
    """It is remembered, and not read again."""
    code.write("a.py", "alpha = 1\n")
    code.write("b.bin", b"ELF\0\1\2" * 100)
    code.write("large.py", "x = 1\n" * 100_000)
    assert code.counts() == (1, 0, 0, 2)
    assert code.counts() == (0, 1, 0, 2)
    assert code.index.state().files == 1


@pytest.mark.parametrize(
    "data",
    [
        "größe = 'Grün'\n".encode("latin-1"),
        "\ufeffgröße = 1\r\n".encode(),
        b"\xff\xfe\xfd\xfc not text at all \x80\x81\n" * 20,
        b"",
        b"\n\n\n",
        b"x" * 90_000,
        b"(" * 20_000,
        "日本語 = 1\n".encode("shift-jis"),
    ],
)
def test_any_text_is_taken_in_and_out_again(code: Repository, data: bytes) -> None:
    """Of whatever encoding; nothing of it stays behind."""
    code.write("odd.py", data)
    code.write("a.py", "alpha = 1\n")
    code.refresh()
    assert code.found("alpha") == ["a.py"]
    (code.root / "odd.py").unlink()
    code.refresh()
    with sqlite3.connect(code.file) as db:
        db.execute("CREATE VIRTUAL TABLE temp.terms USING fts5vocab (main, words, row)")
        terms = {row[0] for row in db.execute("SELECT term FROM temp.terms")}
        counts = [
            db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608
            for table in ("files", "bodies", "chunks")
        ]
    db.close()
    assert terms == {"alpha", "1", "a", "py"}
    assert counts == [1, 1, 1]


def test_a_file_that_vanishes_in_between(code: Repository) -> None:
    """The rest is taken in."""
    for number in range(450):
        code.write(f"f{number:03}.py", f"alpha{number} = 1\n")

    def progress(_: IndexProgress) -> None:
        for path in ("f448.py", "f449.py"):
            (code.root / path).unlink(missing_ok=True)

    state = code.index.refresh(progress)
    assert (state.indexed, state.skipped, state.files) == (448, 2, 448)
    assert code.counts() == (0, 448, 0, 0)


def test_progress_is_told_up_to_the_end(code: Repository) -> None:
    """Files and bytes only grow."""
    for number in range(450):
        code.write(f"f{number:03}.py", "x = 1\n")
    told: list[IndexProgress] = []
    state = code.index.refresh(told.append)
    assert [each.done for each in told] == sorted(each.done for each in told)
    assert (told[0].done, told[-1].done, told[-1].total) == (0, 450, 450)
    assert told[-1].size == state.size == 450 * 6


def test_an_interrupted_index_goes_on(code: Repository) -> None:
    """What was done is not done again, and the state says that there is more."""
    for number in range(450):
        code.write(f"f{number:03}.py", f"alpha{number} = 1\n")
    stop = threading.Event()

    def progress(now: IndexProgress) -> None:
        if now.done:
            stop.set()

    first = code.index.refresh(progress, stop=stop)
    assert not first.is_complete
    assert 0 < first.files < 450
    assert not code.index.state().is_complete
    assert code.best("alpha0") == "f000.py"
    second = code.refresh()
    assert second.is_complete
    assert second.indexed == 450 - first.files
    assert second.files == 450


CHILD = """
import sys
from pathlib import Path
from dodona.tools.code.files.folders import CodeFolders
from dodona.tools.code.index.index import CodeIndex

def tell(now):
    print(now.done, flush=True)
    if now.done:
        sys.stdin.read()  # until we are killed

CodeIndex(CodeFolders([Path(sys.argv[1])]), Path(sys.argv[2]), max_bytes=100_000).refresh(tell)
"""


def test_a_killed_index_goes_on(code: Repository) -> None:
    """By kill -9 in the middle: the batches that were committed stay, and no lock does."""
    for number in range(450):
        code.write(f"f{number:03}.py", f"alpha{number} = 1\n")
    with subprocess.Popen(  # noqa: S603 - our own
        [sys.executable, "-c", CHILD, code.root, code.file],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert [child.stdout.readline().strip() for _ in range(2)] == ["0", "200"]
        # While another is at it, we answer from what is there.
        assert code.index.refresh(wait_for_lock=False).is_complete is False
        assert code.best("alpha7") == "f007.py"
        child.send_signal(signal.SIGKILL)
    state = code.refresh()
    assert (state.indexed, state.files, state.is_complete) == (250, 450, True)


def test_several_at_once(code: Repository) -> None:
    """Each file is taken in once."""
    for number in range(300):
        code.write(f"f{number:03}.py", f"alpha{number} = 1\n")
    taken: list[int] = []
    indexes = [code.opened() for _ in range(4)]
    threads = [
        threading.Thread(target=lambda index=index: taken.append(index.refresh().indexed))
        for index in indexes
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == [0, 0, 0, 300]
    for index in indexes:
        index.close()


def test_a_corrupted_index_is_made_anew(code: Repository) -> None:
    """In the middle of its use."""
    for number in range(50):
        code.write(f"f{number:03}.py", f"alpha{number} = 1\n" * 50)
    code.refresh()
    code.index.close()
    data = bytearray(code.file.read_bytes())
    data[4096:] = b"\xa5" * (len(data) - 4096)
    code.file.write_bytes(data)
    assert code.counts() == (50, 0, 0, 0)
    assert code.best("alpha7") == "f007.py"


def test_a_folder_that_is_away_keeps_its_index(code: Repository) -> None:
    """It may be on a disk that comes back."""
    code.write("a.py", "alpha = 1\n")
    code.refresh()
    os.rename(code.root, code.root.with_name("elsewhere"))
    state = code.refresh()
    assert (state.files, state.removed) == (1, 0)
    assert code.found("alpha") == ["a.py"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_skipped(code: Repository) -> None:
    """And is taken in when it may."""
    code.write("a.py", "alpha = 1\n").chmod(0)
    code.write("b.py", "beta = 1\n")
    assert code.counts() == (1, 0, 0, 1)
    (code.root / "a.py").chmod(0o600)
    assert code.counts() == (1, 1, 0, 0)


def test_rules_that_change_change_the_index(code: Repository) -> None:
    """What is ignored from now on goes, and comes back when it is not."""
    code.write("a.py", "alpha = 1\n")
    code.write("b.py", "beta = 1\n")
    code.refresh()
    rules = code.write(".gitignore", "b.py\n")
    assert code.counts() == (0, 1, 1, 2)
    assert code.found("beta") == []
    rules.unlink()
    assert code.counts() == (1, 1, 0, 0)


def test_an_index_that_cannot_be_written(code: Repository) -> None:
    """It is told without a path."""
    code.file.parent.mkdir()
    code.file.mkdir()
    with pytest.raises((ToolFailed, OSError)) as caught:
        code.refresh()
    if isinstance(caught.value, ToolFailed):
        assert str(code.root.parent) not in str(caught.value)


def test_nothing_is_put_among_the_code(code: Repository) -> None:
    """And the index is its owner's alone."""
    code.write("a.py", "alpha = 1\n")
    code.refresh()
    assert os.listdir(code.root) == ["a.py"]
    for name in os.listdir(code.file.parent):
        assert (code.file.parent / name).stat().st_mode & 0o077 == 0, name


def test_several_folders_are_one_index(tmp_path: Path) -> None:
    """Paths begin with the folder's name."""
    for name in ("api", "web"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.py").write_text(f"{name}_thing = 1\n", encoding="utf-8")
    folders = CodeFolders([tmp_path / "api", tmp_path / "web"])
    index = CodeIndex(folders, tmp_path / "x.db", max_bytes=1_000)
    assert index.refresh().files == 2
    assert [hit.path for hit in index.search("web_thing", 1)] == ["web/a.py"]
    assert index.read("api/a.py", 1, None).text == "api_thing = 1"
    index.close()


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.binary(max_size=400))
def test_any_bytes_in_any_language(code: Repository, data: bytes) -> None:
    """Nothing in a file stops an index."""
    for ending in ("py", "js", "c", "sh", "txt"):
        code.write(f"any.{ending}", data)
    assert code.refresh().is_complete


def test_the_index_may_be_used_while_it_is_made(code: Repository) -> None:
    """Readers never wait for the writer."""
    for number in range(600):
        code.write(f"f{number:03}.py", f"alpha{number} = 1\n")
    reader = code.opened()
    found: list[str] = []

    def progress(now: IndexProgress) -> None:
        if now.done:
            found.extend(hit.path for hit in reader.search("alpha7", 1))

    code.index.refresh(progress)
    assert found == ["f007.py"] * 3
    reader.close()
