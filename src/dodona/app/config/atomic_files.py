"""Files that are replaced whole or not at all: a crash or a full disk leaves the old ones."""

from __future__ import annotations

import os
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fcntl import LOCK_EX, flock
from pathlib import Path
from uuid import uuid4

from dodona.core.errors import ConfigError, SourceLocation


@dataclass(frozen=True, slots=True)
class PendingFile:
    """What a file shall hold. Without a mode, that of the file before it, or the usual one."""

    path: Path
    data: bytes
    mode: int | None = None


@contextmanager
def lock_folder(folder: Path) -> Generator[None]:
    """Nobody else who asks changes files of this folder meanwhile; it is made if it is missing."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _write_error(folder, error) from error
    try:
        flock(descriptor, LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def make_private_folder(home: Path, folder: Path) -> None:
    """Make the folder, and the one above it, if they are missing; nobody else may look into it."""
    with _wrap_os_errors(folder):
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        if stat.S_IMODE(folder.stat().st_mode) & 0o077:
            folder.chmod(0o700)


def write_files(files: Sequence[PendingFile]) -> None:
    """Put the files into their places; all are on the disk before the first of them is there."""
    staged: list[tuple[Path, Path]] = []
    try:
        for file in files:
            # A link stays one: people keep such files elsewhere.
            place = file.path.resolve()
            beside = place.with_name(f".{place.name}.{uuid4().hex}")
            staged.append((beside, place))
            with _wrap_os_errors(file.path):
                _stage(file, place, beside)
        for (beside, place), file in zip(staged, files, strict=True):
            with _wrap_os_errors(file.path):
                beside.replace(place)
        for folder in {place.parent for _, place in staged}:
            _fsync_dir(folder)
    finally:
        for beside, _ in staged:
            with suppress(OSError):
                beside.unlink()


def _stage(file: PendingFile, target: Path, temporary: Path) -> None:
    before = target.stat() if target.exists() else None
    if before is not None and not stat.S_ISREG(before.st_mode):
        raise FileExistsError(0, "it is no file")
    mode = file.mode
    if mode is None and before is not None:
        mode = stat.S_IMODE(before.st_mode)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    # Private from the start: until its mode is set, nobody else may open it.
    with open(os.open(temporary, flags, 0o644 if mode is None else mode & 0o600), "wb") as opened:
        opened.write(file.data)
        opened.flush()
        if before is not None and before.st_uid != os.geteuid() and file.mode is None:
            os.fchown(opened.fileno(), before.st_uid, before.st_gid)
        if mode is not None:
            os.fchmod(opened.fileno(), mode)
        os.fsync(opened.fileno())


def _fsync_dir(folder: Path) -> None:
    """Let the new names outlive the power; they are in their places already."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _wrap_os_errors(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise _write_error(path, error) from error


def _write_error(path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"this cannot be written: {error.strerror}.",
        where=SourceLocation(str(path)),
        hint="What was there before is still there.",
    )
