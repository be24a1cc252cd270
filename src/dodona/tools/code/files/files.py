"""The files of a folder of code, opened folder by folder without following a link.

A path that was checked and then opened by name could lead elsewhere by then. Here each folder is
opened relative to the one above it. All of it blocks: call it from a thread.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

SNIFF_BYTES: Final = 8_192  # bytes in which a NUL says that a file is not text

FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ROOT_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Not blocking: whoever put a pipe there must not make us wait for its other end.
_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class SourceStamp:
    """What tells that a file has not changed."""

    mtime_ns: int
    size: int
    inode: int

    @classmethod
    def of(cls, stat_result: os.stat_result) -> SourceStamp:
        return cls(stat_result.st_mtime_ns, stat_result.st_size, stat_result.st_ino)


@contextmanager
def open_folder_below(root: Path, parts: Sequence[str]) -> Generator[int]:
    """A folder below a root, open. OSError when it is not there, or a link."""
    folder = os.open(root, _ROOT_FLAGS)
    try:
        for part in parts:
            inner = os.open(part, FOLDER_FLAGS, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def read_below(root: Path, parts: Sequence[str], *, max_bytes: int) -> tuple[bytes, SourceStamp]:
    """A file's first bytes, and its stamp before they were read. OSError when it cannot be."""
    with open_folder_below(root, parts[:-1]) as folder:
        return read_file_in(folder, parts[-1], max_bytes=max_bytes)


def read_file_in(folder_fd: int, name: str, *, max_bytes: int) -> tuple[bytes, SourceStamp]:
    file = os.open(name, _FILE_FLAGS, dir_fd=folder_fd)
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise FileNotFoundError(name)
        with open(file, "rb", closefd=False) as opened:
            return opened.read(min(found.st_size, max_bytes)), SourceStamp.of(found)
    finally:
        os.close(file)


def version_of(data: bytes) -> str:
    """A short name of a content."""
    return blake2b(data, digest_size=8).hexdigest()


def is_binary(data: bytes) -> bool:
    return b"\0" in data[:SNIFF_BYTES]


def text_of(data: bytes) -> str:
    """Never fails: what is not UTF-8 is taken for Latin-1, which every byte is."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")
