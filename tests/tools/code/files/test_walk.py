from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from dodona.tools.code.files.folders import CodeFolders, FolderWalk


def walked(*roots: Path, most: int = 1_000) -> tuple[list[str], int]:
    paths: list[str] = []
    skipped = 0
    for folder in CodeFolders(roots).all:
        walk = FolderWalk(folder, most)
        paths += [path for path, _ in walk.files()]
        skipped += walk.skipped
    return paths, skipped


def put(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_files_come_in_order_with_their_stamps(tmp_path: Path) -> None:
    """Those of a folder before those below it."""
    for path in ("b/x.py", "z.py", "a/y.py", "a.py"):
        put(tmp_path / path)
    assert walked(tmp_path) == (["a.py", "z.py", "a/y.py", "b/x.py"], 0)
    (_, stamp), *_ = FolderWalk(CodeFolders([tmp_path]).all[0], 9).files()
    found = (tmp_path / "a.py").stat()
    assert (stamp.mtime_ns, stamp.size, stamp.inode) == (found.st_mtime_ns, 1, found.st_ino)


def test_links_are_not_followed(tmp_path: Path) -> None:
    """Nor in circles, nor out of the folder."""
    code = tmp_path / "code"
    put(code / "a.py")
    put(tmp_path / "secret.py")
    (code / "circle").symlink_to(code)
    (code / "up").symlink_to(tmp_path)
    (code / "file.py").symlink_to(tmp_path / "secret.py")
    (code / "gone.py").symlink_to(tmp_path / "nothing")
    assert walked(code) == (["a.py"], 4)


def test_large_files_are_skipped(tmp_path: Path) -> None:
    """By their size alone: 50 MB are not read."""
    put(tmp_path / "a.py")
    with (tmp_path / "huge.py").open("wb") as file:
        file.truncate(50_000_000)
    assert walked(tmp_path) == (["a.py"], 1)


def test_what_is_no_file_is_skipped(tmp_path: Path) -> None:
    """Whoever opened a pipe would wait for ever."""
    put(tmp_path / "a.py")
    os.mkfifo(tmp_path / "pipe.py")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket.py"))
    assert walked(tmp_path) == (["a.py"], 2)


@pytest.mark.parametrize("name", [b"a\nb.py", b"\xff.py", b"a\\b.py", "a\u2028.py".encode()])
def test_names_that_no_path_can_say_are_skipped(tmp_path: Path, name: bytes) -> None:
    """They could pass for another line of a result."""
    put(tmp_path / "a.py")
    folder = os.fsencode(tmp_path)
    with open(os.path.join(folder, name), "wb"):
        pass
    os.mkdir(os.path.join(folder, b"d-" + name))
    assert walked(tmp_path) == (["a.py"], 2)


def test_a_deep_folder_ends_somewhere(tmp_path: Path) -> None:
    """A thousand folders in each other are no code."""
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("deep.py", os.O_CREAT, dir_fd=here))
    os.close(here)
    put(tmp_path / "a.py")
    assert walked(tmp_path) == (["a.py"], 1)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look everywhere")
def test_a_folder_that_may_not_be_seen_is_skipped(tmp_path: Path) -> None:
    """The others are seen all the same."""
    put(tmp_path / "a.py")
    put(tmp_path / "shut" / "b.py")
    (tmp_path / "shut").chmod(0)
    try:
        assert walked(tmp_path)[0] == ["a.py"]
    finally:
        (tmp_path / "shut").chmod(0o700)


def test_several_folders_are_told_apart(tmp_path: Path) -> None:
    """By their names; by numbers when they share one."""
    roots = [tmp_path / "one", tmp_path / "x" / "api", tmp_path / "y" / "api"]
    for root in roots:
        put(root / "a.py")
    assert walked(*roots)[0] == ["one/a.py", "api/a.py", "api-2/a.py"]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    """The caller decides what that means."""
    with pytest.raises(FileNotFoundError):
        walked(tmp_path / "gone")
