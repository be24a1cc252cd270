"""Opens files of a code folder level by level, without following symbolic links.

A path that is checked first and then opened by name could point elsewhere by then. Here each folder
is opened relative to its parent. All functions block: call them from a thread.
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

SNIFF_BYTES: Final = 8_192  # a NUL byte within these marks a binary file

FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ROOT_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Non-blocking: opening a named pipe must not wait for its other end.
_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class SourceStamp:
    """File metadata that shows whether a file has changed."""

    mtime_ns: int
    size: int
    inode: int

    @classmethod
    def of(cls, stat_result: os.stat_result) -> SourceStamp:
        return cls(stat_result.st_mtime_ns, stat_result.st_size, stat_result.st_ino)


@contextmanager
def open_folder_below(root: Path, parts: Sequence[str]) -> Generator[int]:
    """Open a folder below a root. Raises OSError if it is missing or a link."""
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
    """Return a file's first bytes and its stamp from before the read. May raise OSError."""
    with open_folder_below(root, parts[:-1]) as folder:
        return read_file_in(folder, parts[-1], max_bytes=max_bytes)


def read_file_in(folder_fd: int, name: str, *, max_bytes: int) -> tuple[bytes, SourceStamp]:
    """Like `read_below`, for a file in an open folder."""
    file = os.open(name, _FILE_FLAGS, dir_fd=folder_fd)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError(name)
        with open(file, "rb", closefd=False) as stream:
            return stream.read(min(status.st_size, max_bytes)), SourceStamp.of(status)
    finally:
        os.close(file)


def version_of(data: bytes) -> str:
    """Return a short hash of a file's content."""
    return blake2b(data, digest_size=8).hexdigest()


def is_binary(data: bytes) -> bool:
    """Whether the data contains a NUL byte near its beginning."""
    return b"\0" in data[:SNIFF_BYTES]


def text_of(data: bytes) -> str:
    """Decode as UTF-8, else as Latin-1, which accepts every byte."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")
