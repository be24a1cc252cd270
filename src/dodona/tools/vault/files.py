"""The files of a vault, opened folder by folder without following a link.

A path that was checked and then opened by name could lead elsewhere by then. Here each folder is
opened relative to the one above it, so what is read or written is below the root, whatever others
do meanwhile. All of it blocks: call it from a thread.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Final

from dodona.core.errors import AccessDenied, ToolFailed, ToolRetry
from dodona.tools.vault.paths import DEEPEST, is_note, is_usable

MOST_BYTES: Final = 1_000_000  # of a note that are read or may be written

_PAGE: Final = 4096
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Not blocking: whoever put a pipe there must not make us wait for its other end.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Stamp:
    """What tells that a file has not changed."""

    mtime_ns: int
    size: int


@dataclass(frozen=True, slots=True)
class Content:
    """A file's first `MOST_BYTES` bytes as text, and its stamp when it was opened."""

    text: str
    stamp: Stamp

    @property
    def is_cut(self) -> bool:
        return self.stamp.size > MOST_BYTES


class Written(Enum):
    CREATED = "created"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"


def read_file(root: Path, parts: Sequence[str]) -> Content:
    """A file's text. FileNotFoundError when there is none."""
    with _folder(root, parts[:-1]) as folder:
        data, found = _read(folder, parts)
    # Never fails: a note in another encoding is shown as well as it can be.
    return Content(data.decode("utf-8-sig", "replace"), _stamp(found))


def write_file(root: Path, parts: Sequence[str], *, text: str) -> Written:
    """Make the text the whole content of a file, at once; folders are made as needed."""
    data = text.encode()
    if len(data) > MOST_BYTES:
        raise ToolRetry(
            f"the content has {len(data):,} bytes, and a note at most {MOST_BYTES:,}.",
            hint="Write several notes.",
        )
    _refuse_twin(root, parts)
    with _folder(root, parts[:-1], is_made=True) as folder:
        try:
            there, found = _read(folder, parts)
        except FileNotFoundError:
            _replace(folder, parts[-1], data, mode=None)
            return Written.CREATED
        if there == data and found.st_size == len(data):
            return Written.UNCHANGED
        mode = stat.S_IMODE(found.st_mode)
        if not mode & 0o222:  # a rename would not care
            raise AccessDenied(f"'{'/'.join(parts)}' is read-only.")
        _replace(folder, parts[-1], data, mode=mode)
        return Written.REPLACED


def walk_notes(root: Path) -> Iterator[tuple[str, Stamp]]:
    """Every note with its stamp, in a fixed order; hidden files and links are passed over."""
    with _folder(root, ()) as top:
        for place, folders, files, folder in os.fwalk(".", dir_fd=top):
            where = PurePosixPath(place)
            is_deepest = len(where.parts) >= DEEPEST - 1
            folders[:] = [] if is_deepest else sorted(filter(is_usable, folders))
            for name in sorted(files):
                if not (is_note(name) and is_usable(name)):
                    continue
                with suppress(OSError):  # gone since
                    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    if stat.S_ISREG(found.st_mode):
                        yield str(where / name), _stamp(found)


@contextmanager
def _folder(root: Path, parts: Sequence[str], *, is_made: bool = False) -> Generator[int]:
    """A folder of the vault, open."""
    try:
        folder = os.open(root, _FOLDER)
    except OSError as error:
        raise ToolFailed(
            f"the vault's folder cannot be opened: {error.strerror}.",
            hint="Whoever runs Dodona must look at [vault] path.",
        ) from error
    try:
        for part in parts:
            if is_made:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=folder)
            try:
                inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            except OSError as error:
                _refuse_link(error, part)
                raise
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def _read(folder: int, parts: Sequence[str]) -> tuple[bytes, os.stat_result]:
    try:
        file = os.open(parts[-1], _FILE, dir_fd=folder)
    except OSError as error:
        _refuse_link(error, parts[-1])
        raise
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise AccessDenied(f"'{'/'.join(parts)}' is not a file.")
        # As much as there is: to ask for the most would make room for the most, each time.
        with open(file, "rb", closefd=False) as opened:
            return opened.read(min(max(found.st_size, _PAGE), MOST_BYTES)), found
    finally:
        os.close(file)


def _refuse_link(error: OSError, part: str) -> None:
    if error.errno in {errno.ELOOP, errno.ENOTDIR}:
        raise AccessDenied(f"'{part}' is a link or not a folder; links are not followed.")


def _replace(folder: int, name: str, data: bytes, *, mode: int | None) -> None:
    """Write beside the file and rename over it: a reader sees the old or the new, never half."""
    beside = f".dodona-{secrets.token_hex(8)}.tmp"
    file = os.open(beside, _NEW, 0o666, dir_fd=folder)
    try:
        with open(file, "wb") as opened:
            if mode is not None:
                os.fchmod(file, mode)
            opened.write(data)
            opened.flush()
            os.fsync(file)
        os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside, dir_fd=folder)
        raise
    os.fsync(folder)


def _refuse_twin(root: Path, parts: Sequence[str]) -> None:
    """Names that differ in case only are one file on some systems and two on others."""
    for depth, part in enumerate(parts):
        try:
            with _folder(root, parts[:depth]) as folder:
                names = os.listdir(folder)
        except FileNotFoundError:
            return
        if part in names:
            continue
        twin = next((name for name in names if name.casefold() == part.casefold()), None)
        if twin is not None:
            right = "/".join([*parts[:depth], twin, *parts[depth + 1 :]])
            raise ToolRetry(f"there is '{twin}' already.", hint=f"Did you mean '{right}'?")


def _stamp(found: os.stat_result) -> Stamp:
    return Stamp(found.st_mtime_ns, found.st_size)
