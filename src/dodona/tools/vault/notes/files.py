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
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path, PurePosixPath
from typing import Final, Literal, TypeAlias

from dodona.core.errors import AccessDenied, Conflict, ToolFailed, ToolRetry
from dodona.tools.vault.notes.paths import (
    MAX_DEPTH,
    fold_name,
    is_allowed_name,
    is_note,
    is_same_name,
)

MAX_NOTE_BYTES: Final = 1_000_000  # of a note that are read or may be written
MAX_RELINK_BYTES: Final = 64_000_000  # of a note whose links are changed

_MIN_READ_BYTES: Final = 4096
_OPEN_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Not blocking: whoever put a pipe there must not make us wait for its other end.
_OPEN_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NO_HARD_LINK_ERRNOS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_CREATE_FILE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class NoteStamp:
    """What tells that a file has not changed."""

    mtime_ns: int
    size: int


@dataclass(frozen=True, slots=True)
class NoteContent:
    """A file's first `MOST_BYTES` bytes, and its stamp when it was opened."""

    data: bytes
    stamp: NoteStamp

    @property
    def text(self) -> str:
        """Never fails: a note in another encoding is shown as well as it can be."""
        return self.data.decode("utf-8-sig", "replace")

    @property
    def is_cut(self) -> bool:
        return self.stamp.size > MAX_NOTE_BYTES

    @property
    def version(self) -> str:
        """Of a file that is cut, it also changes with the size; what follows is not read."""
        return version_of(self.data) if not self.is_cut else version_of(self.data, self.stamp.size)


WriteOutcome: TypeAlias = Literal["created", "replaced", "unchanged"]


def version_of(data: bytes, size: int = 0) -> str:
    """A short hash of what is in a file: two notes with one version have one content."""
    return blake2b(data, digest_size=8, salt=size.to_bytes(8, "big")).hexdigest()


def read_file(root: Path, parts: Sequence[str]) -> NoteContent:
    """A file's content. FileNotFoundError when there is none."""
    with _open_folder(root, parts[:-1]) as folder:
        data, found = _read_bytes(folder, parts, max_bytes=MAX_NOTE_BYTES)
    return NoteContent(data, _stamp(found))


def read_full_file(root: Path, parts: Sequence[str]) -> bytes:
    """All of a file, to change some of it."""
    with _open_folder(root, parts[:-1]) as folder:
        data, found = _read_bytes(folder, parts, max_bytes=MAX_RELINK_BYTES)
    if found.st_size > MAX_RELINK_BYTES:
        raise ToolFailed(f"'{'/'.join(parts)}' is too large to have its links changed.")
    return data


def reject_read_only(root: Path, parts: Sequence[str]) -> None:
    """Tell before anything is done that a file may not be changed."""
    with _open_folder(root, parts[:-1]) as folder:
        _reject_read_only(_stat_entry(folder, parts[-1]), parts)


def write_file(root: Path, parts: Sequence[str], *, text: str, version: str) -> WriteOutcome:
    """Make the text the whole content of a file of this version, at once.

    The version "" is that of a file that is not there; folders are made as needed. Conflict when
    the file has another version, unless it already says what it should: then nothing is written.
    A program that does not take our lock can still write between our look and our rename.
    """
    data = _encode_note(text)
    reject_name_collision(root, parts)
    with _open_folder(root, parts[:-1], create_missing=True) as folder:
        try:
            there, found = _read_bytes(folder, parts, max_bytes=MAX_NOTE_BYTES)
        except FileNotFoundError:
            if version:
                raise Conflict(
                    f"the note '{'/'.join(parts)}' is gone.",
                    hint="To make it anew, write it without a version.",
                ) from None
            _replace(folder, parts[-1], data, mode=None)
            return "created"
        known = NoteContent(there, _stamp(found))
        if there == data and not known.is_cut:
            return "unchanged"
        _reject_conflict(known, parts, version=version)
        _reject_read_only(found, parts)
        _replace(folder, parts[-1], data, mode=stat.S_IMODE(found.st_mode))
        return "replaced"


def replace_file(root: Path, parts: Sequence[str], *, data: bytes, expected: bytes) -> bool:
    """Replace what a file holds; False when it holds something else than `was` by now.

    Its folder is not synchronised with the disk: `sync_folders` does so for many at once.
    """
    with _open_folder(root, parts[:-1]) as folder:
        there, found = _read_bytes(folder, parts, max_bytes=MAX_RELINK_BYTES)
        if there != expected:
            return False
        _reject_read_only(found, parts)
        mode = stat.S_IMODE(found.st_mode)
        _replace(folder, parts[-1], data, mode=mode, sync_folder=False)
        return True


def rename_file(root: Path, parts: Sequence[str], to: Sequence[str]) -> None:
    """Give a file another path. FileExistsError when there is one already; folders are made."""
    reject_name_collision(root, to, ignoring=parts)
    with (
        _open_folder(root, parts[:-1]) as here,
        _open_folder(root, to[:-1], create_missing=True) as there,
    ):
        if fold_name("/".join(parts)) == fold_name("/".join(to)):
            # To some systems these are one file already, and a link to it could not be made.
            os.rename(parts[-1], to[-1], src_dir_fd=here, dst_dir_fd=there)
        else:
            _rename(here, there, parts[-1], to[-1])
        os.fsync(there)
        os.fsync(here)


def find_inode(root: Path, parts: Sequence[str]) -> int | None:
    """Which file is at a path, by its number; None when there is none."""
    try:
        with _open_folder(root, parts[:-1]) as folder:
            return _stat_entry(folder, parts[-1]).st_ino
    except FileNotFoundError:
        return None


def sync_folders(root: Path, folders: Iterable[Sequence[str]]) -> None:
    """What was renamed in these folders is so after a power cut too."""
    for parts in folders:
        with suppress(FileNotFoundError), _open_folder(root, parts) as folder:
            os.fsync(folder)


def remove_empty_folders(root: Path, parts: Sequence[str]) -> None:
    """Remove a folder from which something was taken, and those above it, as far as empty."""
    for depth in range(len(parts), 0, -1):
        try:
            with _open_folder(root, parts[: depth - 1]) as above:
                os.rmdir(parts[depth - 1], dir_fd=above)
        except OSError:
            return


def resolve_spelling(root: Path, parts: Sequence[str]) -> tuple[str, ...]:
    """The path as its files are named, where only the way accents are encoded differs."""
    found: list[str] = []
    for part in parts:
        names: list[str] = []
        if not part.isascii():
            with suppress(FileNotFoundError), _open_folder(root, found) as folder:
                names = os.listdir(folder)
        alike = (name for name in names if is_same_name(name, part))
        found.append(part if part in names else next(alike, part))
    return tuple(found)


def walk_notes(root: Path) -> Iterator[tuple[str, NoteStamp]]:
    """Every note with its stamp, in a fixed order; hidden files and links are passed over."""
    with _open_folder(root, ()) as top:
        for place, folders, files, folder in os.fwalk(".", dir_fd=top):
            where = PurePosixPath(place)
            is_deepest = len(where.parts) >= MAX_DEPTH - 1
            folders[:] = [] if is_deepest else sorted(filter(is_allowed_name, folders))
            for name in sorted(files):
                if not (is_note(name) and is_allowed_name(name)):
                    continue
                with suppress(OSError):  # gone since
                    found = _stat_entry(folder, name)
                    if stat.S_ISREG(found.st_mode):
                        yield str(where / name), _stamp(found)


@contextmanager
def _open_folder(
    root: Path, parts: Sequence[str], *, create_missing: bool = False
) -> Generator[int]:
    """A folder of the vault, open."""
    try:
        folder = os.open(root, _OPEN_FOLDER_FLAGS)
    except OSError as error:
        raise ToolFailed(
            f"the vault's folder cannot be opened: {error.strerror}.",
            hint="Whoever runs Dodona must look at [vault] path.",
        ) from error
    try:
        for part in parts:
            if create_missing:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=folder)
            try:
                inner = os.open(part, _OPEN_FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=folder)
            except OSError as error:
                _reject_link(error, part)
                raise
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def _read_bytes(
    folder: int, parts: Sequence[str], *, max_bytes: int
) -> tuple[bytes, os.stat_result]:
    try:
        file = os.open(parts[-1], _OPEN_FILE_FLAGS, dir_fd=folder)
    except OSError as error:
        _reject_link(error, parts[-1])
        raise
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise AccessDenied(f"'{'/'.join(parts)}' is not a file.")
        # As much as there is: to ask for the most would make room for the most, each time.
        with open(file, "rb", closefd=False) as opened:
            return opened.read(min(max(found.st_size, _MIN_READ_BYTES), max_bytes)), found
    finally:
        os.close(file)


def _reject_link(error: OSError, part: str) -> None:
    if error.errno in {errno.ELOOP, errno.ENOTDIR}:
        raise AccessDenied(f"'{part}' is a link or not a folder; links are not followed.")


def _reject_read_only(status: os.stat_result, parts: Sequence[str]) -> None:
    if not stat.S_IMODE(status.st_mode) & 0o222:  # a rename would not care
        raise AccessDenied(f"'{'/'.join(parts)}' is read-only.")


def _reject_conflict(current: NoteContent, parts: Sequence[str], *, version: str) -> None:
    """What was not seen must not be lost: another's edit, what was cut off, bytes not shown."""
    path = "/".join(parts)
    if version != current.version:
        said = "was changed meanwhile" if version else "is there already"
        raise Conflict(
            f"the note '{path}' {said}: its version is {current.version}.",
            hint="Read it again, and give that version with what you make of it.",
        )
    if current.is_cut:
        raise AccessDenied(f"'{path}' is longer than what can be read of it, and stays as it is.")
    try:
        current.data.decode()
    except UnicodeDecodeError:
        raise AccessDenied(f"'{path}' is not in UTF-8, and stays as it is.") from None


def _encode_note(text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise ToolRetry("the content holds half a character (a lone surrogate).") from None
    if len(data) > MAX_NOTE_BYTES:
        raise ToolRetry(
            f"the content has {len(data):,} bytes, and a note at most {MAX_NOTE_BYTES:,}.",
            hint="Write several notes.",
        )
    return data


def _replace(
    folder: int, name: str, data: bytes, *, mode: int | None, sync_folder: bool = True
) -> None:
    """Write beside the file and rename over it: a reader sees the old or the new, never half."""
    beside = f".dodona-{secrets.token_hex(8)}.tmp"
    file = os.open(beside, _CREATE_FILE_FLAGS, 0o666, dir_fd=folder)
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
    if sync_folder:
        os.fsync(folder)


def _rename(here: int, there: int, name: str, to: str) -> None:
    """By a second name for the file: unlike a rename, that never replaces what has the name."""
    try:
        os.link(name, to, src_dir_fd=here, dst_dir_fd=there, follow_symlinks=False)
    except FileExistsError:
        if not os.path.samestat(_stat_entry(here, name), _stat_entry(there, to)):
            raise  # else we were cut off between the two lines
    except OSError as error:
        if error.errno not in _NO_HARD_LINK_ERRNOS:
            raise
        with suppress(FileNotFoundError):
            _stat_entry(there, to)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
        os.rename(name, to, src_dir_fd=here, dst_dir_fd=there)
        return
    os.unlink(name, dir_fd=here)


def _stat_entry(folder: int, name: str) -> os.stat_result:
    return os.stat(name, dir_fd=folder, follow_symlinks=False)


def reject_name_collision(
    root: Path, parts: Sequence[str], *, ignoring: Sequence[str] = ()
) -> None:
    """Names that differ in case or encoding only are one file on some systems, two on others."""
    for depth, part in enumerate(parts):
        try:
            with _open_folder(root, parts[:depth]) as folder:
                names = os.listdir(folder)
        except FileNotFoundError:
            return
        if part in names:
            continue
        others = (name for name in names if (*parts[:depth], name) != tuple(ignoring))
        twin = next((name for name in others if fold_name(name) == fold_name(part)), None)
        if twin is not None:
            right = "/".join([*parts[:depth], twin, *parts[depth + 1 :]])
            raise ToolRetry(f"there is '{twin}' already.", hint=f"Did you mean '{right}'?")


def _stamp(status: os.stat_result) -> NoteStamp:
    return NoteStamp(status.st_mtime_ns, status.st_size)
