"""The files of a vault, opened level by level without following symbolic links.

A path that is checked first and then opened by name could point elsewhere by then. Here each folder
is opened relative to its parent, so all access stays below the root, whatever other programs do
meanwhile. All functions block: call them from a thread.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path, PurePosixPath
from typing import Final, Literal, TypeAlias

from dodona.core.errors import AccessDenied, Conflict, ToolFailed, ToolRetry
from dodona.tools.skipped_names import ReportName, is_utf8, warn_once
from dodona.tools.vault.notes.paths import (
    MAX_DEPTH,
    fold_name,
    is_allowed_name,
    is_note,
    is_same_name,
)

MAX_NOTE_BYTES: Final = 1_000_000  # limit for reading and writing a note
MAX_RELINK_BYTES: Final = 64_000_000  # limit for a note whose links are rewritten

_MIN_READ_BYTES: Final = 4096
_OPEN_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Non-blocking: opening a named pipe must not wait for its other end.
_OPEN_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NO_HARD_LINK_ERRNOS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_CREATE_FILE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class NoteStamp:
    """File metadata that shows whether a file has changed."""

    mtime_ns: int
    size: int


@dataclass(frozen=True, slots=True)
class NoteContent:
    """The first `MAX_NOTE_BYTES` bytes of a file, and its stamp when it was opened."""

    data: bytes
    stamp: NoteStamp

    @property
    def text(self) -> str:
        """The decoded text; invalid UTF-8 is replaced."""
        return decode_note(self.data)

    @property
    def is_cut(self) -> bool:
        """Whether the file is longer than `data`."""
        return self.stamp.size > MAX_NOTE_BYTES

    @property
    def version(self) -> str:
        """The version of the content. If the file is cut, it also depends on the size."""
        return version_of(self.data) if not self.is_cut else version_of(self.data, self.stamp.size)


@dataclass(frozen=True, slots=True)
class _FileToReplace:
    data: bytes
    mode: int


BeforeReplace: TypeAlias = Callable[[bytes | None, bytes], None]  # the old and the new content
WriteOutcome: TypeAlias = Literal["created", "replaced", "unchanged"]


def decode_note(data: bytes) -> str:
    """Return the text of a note as it is read; invalid UTF-8 is replaced."""
    return data[:MAX_NOTE_BYTES].decode("utf-8-sig", "replace")


def version_of(data: bytes, size: int = 0) -> str:
    """Return a short hash of a file's content: equal versions mean equal content."""
    return blake2b(data, digest_size=8, salt=size.to_bytes(8, "big")).hexdigest()


def read_file(root: Path, parts: Sequence[str]) -> NoteContent:
    """Read a file. Raises FileNotFoundError."""
    with _open_folder(root, parts[:-1]) as folder:
        data, status = _read_bytes(folder, parts, max_bytes=MAX_NOTE_BYTES)
    return NoteContent(data, _stamp(status))


def read_full_file(root: Path, parts: Sequence[str]) -> bytes:
    """Read a whole file in order to change part of it."""
    with _open_folder(root, parts[:-1]) as folder:
        data, status = _read_bytes(folder, parts, max_bytes=MAX_RELINK_BYTES)
    if status.st_size > MAX_RELINK_BYTES:
        raise ToolFailed(f"'{'/'.join(parts)}' is too large: its links cannot be changed.")
    return data


def reject_read_only(root: Path, parts: Sequence[str]) -> None:
    """Raise AccessDenied if a file is read-only, before anything is changed."""
    with _open_folder(root, parts[:-1]) as folder:
        _reject_read_only(_stat_entry(folder, parts[-1]), parts)


def write_file(
    root: Path,
    parts: Sequence[str],
    *,
    text: str,
    version: str,
    before_replace: BeforeReplace = lambda old, new: None,
) -> WriteOutcome:
    """Replace the content of a file atomically, if it has this version.

    The version "" means that the file does not exist; missing folders are created. Raises Conflict
    if the file has another version, unless it already has this content: then nothing is written.
    `before_replace` is called when all checks have passed, which are repeated after it. A program
    that does not use our lock can still write between our last check and the rename.
    """
    data = _encode_note(text)
    reject_name_collision(root, parts)
    with _open_folder(root, parts[:-1], create_missing=True) as folder:
        checked = _check_write(folder, parts, data, version=version)
        if isinstance(checked, str):
            return checked
        before_replace(checked.data if checked else None, data)
        again = _check_write(folder, parts, data, version=version)
        if isinstance(again, str):
            return again
        _replace(folder, parts[-1], data, mode=again.mode if again else None)
        return "replaced" if again else "created"


def remove_file(
    root: Path, parts: Sequence[str], *, version: str, before_remove: Callable[[bytes], None]
) -> None:
    """Remove a file that has this version. Raises Conflict if it has another one or is gone.

    `before_remove` is called when all checks have passed, which are repeated after it.
    """
    with _open_folder(root, parts[:-1]) as folder:
        checked = _check_write(folder, parts, None, version=version)
        if isinstance(checked, _FileToReplace):
            before_remove(checked.data)
            _check_write(folder, parts, None, version=version)
            os.unlink(parts[-1], dir_fd=folder)
            os.fsync(folder)


def _check_write(
    folder: int, parts: Sequence[str], data: bytes | None, *, version: str
) -> _FileToReplace | Literal["unchanged"] | None:
    """Return the file that a write replaces; None if it creates it. Without data, for a removal."""
    try:
        data_on_disk, status = _read_bytes(folder, parts, max_bytes=MAX_NOTE_BYTES)
    except FileNotFoundError:
        if version:
            raise Conflict(
                f"the note '{'/'.join(parts)}' is gone.",
                hint="To create it again, write it without a version.",
            ) from None
        return None
    current = NoteContent(data_on_disk, _stamp(status))
    if data_on_disk == data and not current.is_cut:
        return "unchanged"
    _reject_conflict(current, parts, version=version)
    _reject_read_only(status, parts)
    return _FileToReplace(data_on_disk, stat.S_IMODE(status.st_mode))


def replace_file(root: Path, parts: Sequence[str], *, data: bytes, expected: bytes) -> bool:
    """Replace the content of a file; return False if it no longer equals `expected`.

    The folder is not synced to disk: `sync_folders` does this for many folders at once.
    """
    with _open_folder(root, parts[:-1]) as folder:
        current, status = _read_bytes(folder, parts, max_bytes=MAX_RELINK_BYTES)
        if current != expected:
            return False
        _reject_read_only(status, parts)
        mode = stat.S_IMODE(status.st_mode)
        _replace(folder, parts[-1], data, mode=mode, sync_folder=False)
        return True


def rename_file(root: Path, parts: Sequence[str], to: Sequence[str]) -> None:
    """Move a file; missing folders are created. Raises FileExistsError."""
    reject_name_collision(root, to, ignoring=parts)
    with (
        _open_folder(root, parts[:-1]) as source_folder,
        _open_folder(root, to[:-1], create_missing=True) as target_folder,
    ):
        if fold_name("/".join(parts)) == fold_name("/".join(to)):
            # On some file systems both names are the same file, so a hard link would fail.
            os.rename(parts[-1], to[-1], src_dir_fd=source_folder, dst_dir_fd=target_folder)
        else:
            _rename(source_folder, target_folder, parts[-1], to[-1])
        os.fsync(target_folder)
        os.fsync(source_folder)


def find_inode(root: Path, parts: Sequence[str]) -> int | None:
    """Return the inode number of the file at a path, or None."""
    try:
        with _open_folder(root, parts[:-1]) as folder:
            return _stat_entry(folder, parts[-1]).st_ino
    except FileNotFoundError:
        return None


def new_names(root: Path, parts: Sequence[str]) -> tuple[str, ...]:
    """Return the path with those of its folders that do not exist yet."""
    folders = ("/".join(parts[:depth]) for depth in range(1, len(parts)))
    missing = (folder for folder in folders if find_inode(root, folder.split("/")) is None)
    return (*missing, "/".join(parts))


def sync_folders(root: Path, folders: Iterable[Sequence[str]]) -> None:
    """Sync folders to disk, so that renames in them survive a power cut."""
    for parts in folders:
        with suppress(FileNotFoundError), _open_folder(root, parts) as folder:
            os.fsync(folder)


def remove_empty_folders(root: Path, parts: Sequence[str]) -> None:
    """Remove a folder and its parents as far as they are empty."""
    for depth in range(len(parts), 0, -1):
        try:
            with _open_folder(root, parts[: depth - 1]) as parent:
                os.rmdir(parts[depth - 1], dir_fd=parent)
        except OSError:
            return


def resolve_spelling(root: Path, parts: Sequence[str]) -> tuple[str, ...]:
    """Return the path with the Unicode encoding that its files are named with."""
    resolved: list[str] = []
    for part in parts:
        names: list[str] = []
        if not part.isascii():
            with suppress(FileNotFoundError), _open_folder(root, resolved) as folder:
                names = os.listdir(folder)
        same_names = (name for name in names if is_same_name(name, part))
        resolved.append(part if part in names else next(same_names, part))
    return tuple(resolved)


def walk_notes(
    root: Path, path: str = "", *, on_skipped: ReportName = warn_once
) -> Iterator[tuple[str, NoteStamp]]:
    """Yield the notes at or below a path with their stamps, without hidden files and links.

    `on_skipped` gets the notes and folders whose names are not UTF-8.
    """
    parts = PurePosixPath(path).parts
    if not all(map(is_allowed_name, parts)):
        if not is_utf8(path):
            on_skipped(root, path)
        return
    try:
        with _open_folder(root, parts[:-1]) as parent:
            if parts and stat.S_ISREG(_stat_entry(parent, parts[-1]).st_mode):
                yield from _stamp_notes(parent, PurePosixPath(*parts[:-1]), parts[-1:])
                return
        with _open_folder(root, parts) as top:
            yield from _walk_folder(top, parts, lambda name: on_skipped(root, name))
    except (OSError, AccessDenied):  # removed, unreadable, or a link
        return


def _walk_folder(
    top: int, parts: Sequence[str], on_skipped: Callable[[str], None]
) -> Iterator[tuple[str, NoteStamp]]:
    for folder_path, folders, files, folder in os.fwalk(".", dir_fd=top):
        relative = PurePosixPath(*parts, folder_path)
        for name in (*folders, *filter(is_note, files)):
            if not is_utf8(name) and not name.startswith("."):
                on_skipped(str(relative / name))
        is_deepest = len(relative.parts) >= MAX_DEPTH - 1
        folders[:] = [] if is_deepest else sorted(filter(is_allowed_name, folders))
        yield from _stamp_notes(folder, relative, sorted(files))


def _stamp_notes(
    folder: int, path: PurePosixPath, names: Iterable[str]
) -> Iterator[tuple[str, NoteStamp]]:
    if len(path.parts) >= MAX_DEPTH:
        return
    for name in names:
        if is_note(name) and is_allowed_name(name):
            with suppress(OSError):  # removed meanwhile
                status = _stat_entry(folder, name)
                if stat.S_ISREG(status.st_mode):
                    yield str(path / name), _stamp(status)


@contextmanager
def _open_folder(
    root: Path, parts: Sequence[str], *, create_missing: bool = False
) -> Generator[int]:
    """Open a folder of the vault."""
    try:
        folder = os.open(root, _OPEN_FOLDER_FLAGS)
    except OSError as error:
        raise ToolFailed(
            f"the vault's folder cannot be opened: {error.strerror}.",
            hint="The operator must check [vault] path.",
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
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise AccessDenied(f"'{'/'.join(parts)}' is not a file.")
        # Read the actual size: `read(max_bytes)` would allocate the maximum each time.
        with open(file, "rb", closefd=False) as stream:
            return stream.read(min(max(status.st_size, _MIN_READ_BYTES), max_bytes)), status
    finally:
        os.close(file)


def _reject_link(error: OSError, part: str) -> None:
    if error.errno in {errno.ELOOP, errno.ENOTDIR}:
        raise AccessDenied(f"'{part}' is a link or not a folder; links are not followed.")


def _reject_read_only(status: os.stat_result, parts: Sequence[str]) -> None:
    if not stat.S_IMODE(status.st_mode) & 0o222:  # a rename would succeed anyway
        raise AccessDenied(f"'{'/'.join(parts)}' is read-only.")


def _reject_conflict(current: NoteContent, parts: Sequence[str], *, version: str) -> None:
    """Prevent the loss of unseen content: another edit, the cut-off rest, undecodable bytes."""
    path = "/".join(parts)
    if version != current.version:
        reason = "has changed" if version else "already exists"
        raise Conflict(
            f"the note '{path}' {reason}: its version is {current.version}.",
            hint="Read it again, then write your changes with that version.",
        )
    if current.is_cut:
        raise AccessDenied(f"'{path}' is too long to be read in full, so it cannot be replaced.")
    try:
        current.data.decode()
    except UnicodeDecodeError:
        raise AccessDenied(f"'{path}' is not UTF-8, so it cannot be replaced.") from None


def _encode_note(text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise ToolRetry("the content contains half a character (a lone surrogate).") from None
    if len(data) > MAX_NOTE_BYTES:
        raise ToolRetry(
            f"the content has {len(data):,} bytes; a note can have at most {MAX_NOTE_BYTES:,}.",
            hint="Split it into several notes.",
        )
    return data


def _replace(
    folder: int, name: str, data: bytes, *, mode: int | None, sync_folder: bool = True
) -> None:
    """Write to a temporary file and rename it: a reader never sees a partial file."""
    temporary = f".dodona-{secrets.token_hex(8)}.tmp"
    file = os.open(temporary, _CREATE_FILE_FLAGS, 0o666, dir_fd=folder)
    try:
        with open(file, "wb") as stream:
            if mode is not None:
                os.fchmod(file, mode)
            stream.write(data)
            stream.flush()
            os.fsync(file)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    if sync_folder:
        os.fsync(folder)


def _rename(source_folder: int, target_folder: int, name: str, to: str) -> None:
    """Move a file through a hard link, which never replaces an existing file."""
    try:
        os.link(name, to, src_dir_fd=source_folder, dst_dir_fd=target_folder, follow_symlinks=False)
    except FileExistsError:
        if not os.path.samestat(_stat_entry(source_folder, name), _stat_entry(target_folder, to)):
            raise  # else a crash interrupted us between link and unlink
    except OSError as error:
        if error.errno not in _NO_HARD_LINK_ERRNOS:
            raise
        with suppress(FileNotFoundError):
            _stat_entry(target_folder, to)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
        os.rename(name, to, src_dir_fd=source_folder, dst_dir_fd=target_folder)
        return
    os.unlink(name, dir_fd=source_folder)


def _stat_entry(folder: int, name: str) -> os.stat_result:
    return os.stat(name, dir_fd=folder, follow_symlinks=False)


def reject_name_collision(
    root: Path, parts: Sequence[str], *, ignoring: Sequence[str] = ()
) -> None:
    """Reject a name that differs only in case or encoding from an existing one.

    Such names are one file on some systems and two on others.
    """
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
            suggestion = "/".join([*parts[:depth], twin, *parts[depth + 1 :]])
            raise ToolRetry(f"'{twin}' already exists.", hint=f"Did you mean '{suggestion}'?")


def _stamp(status: os.stat_result) -> NoteStamp:
    return NoteStamp(status.st_mtime_ns, status.st_size)
