"""Replaces files atomically: after a crash or on a full disk, the old file is intact."""

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
    """New content for a file. Without `mode`, the old file's mode or the default applies."""

    path: Path
    data: bytes
    mode: int | None = None


@contextmanager
def lock_folder(folder: Path) -> Generator[None]:
    """Hold an exclusive advisory lock on the folder; create the folder if it is missing."""
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
    """Create the folder and its parent if missing, and make it accessible to its owner only."""
    with _wrap_os_errors(folder):
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        if stat.S_IMODE(folder.stat().st_mode) & 0o077:
            folder.chmod(0o700)


def write_files(files: Sequence[PendingFile]) -> None:
    """Replace the files. All new content is on disk before the first file is replaced."""
    staged: list[tuple[Path, Path]] = []
    try:
        for file in files:
            # Keep symlinks: users may store their config elsewhere, such as in a repository.
            target = file.path.resolve()
            temporary = target.with_name(f".{target.name}.{uuid4().hex}")
            staged.append((temporary, target))
            with _wrap_os_errors(file.path):
                _stage(file, target, temporary)
        for (temporary, target), file in zip(staged, files, strict=True):
            with _wrap_os_errors(file.path):
                temporary.replace(target)
        for folder in {target.parent for _, target in staged}:
            _fsync_dir(folder)
    finally:
        for temporary, _ in staged:
            with suppress(OSError):
                temporary.unlink()


def _stage(file: PendingFile, target: Path, temporary: Path) -> None:
    before = target.stat() if target.exists() else None
    if before is not None and not stat.S_ISREG(before.st_mode):
        raise FileExistsError(0, "not a regular file")
    mode = file.mode
    if mode is None and before is not None:
        mode = stat.S_IMODE(before.st_mode)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    # Private from the start: other users must not open it before its mode is set.
    with open(os.open(temporary, flags, 0o644 if mode is None else mode & 0o600), "wb") as opened:
        opened.write(file.data)
        opened.flush()
        if before is not None and before.st_uid != os.geteuid() and file.mode is None:
            os.fchown(opened.fileno(), before.st_uid, before.st_gid)
        if mode is not None:
            os.fchmod(opened.fileno(), mode)
        os.fsync(opened.fileno())


def _fsync_dir(folder: Path) -> None:
    """Make the renames durable. Failure is ignored: the files are already in place."""
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
        f"cannot write: {error.strerror}.",
        where=SourceLocation(str(path)),
        hint="The old content is unchanged.",
    )
