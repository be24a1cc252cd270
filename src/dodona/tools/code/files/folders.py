"""The code folders of a project, and the paths of files in them.

A path is relative to its folder; with several folders it starts with the folder's name. Paths come
from the model: one that tries to leave the folders is denied, an invalid one is reported.

Files are opened level by level, without following symbolic links: a path that is checked first and
then opened by name could point elsewhere by then. All functions that open files block.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path, PurePosixPath
from typing import Final

from dodona.core.errors import AccessDenied, ToolRetry
from dodona.tools.code.files.ignore_rules import MAX_IGNORE_FILE_BYTES, IgnoreRules
from dodona.tools.skipped_names import is_utf8, warn_once

MAX_PATH_CHARS: Final = 1_000
MAX_DEPTH: Final = 64

# Control characters, line separators, lone surrogates, and the backslash.
_INVALID_CHARACTERS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\\\\]")
_TEST_PATH = re.compile(r"(?:^|[/_.-])tests?(?:[/_.-]|$)|[a-z0-9]Tests?\.\w+$")
_PATH_HINT: Final = "Give a path as search_code returns it, such as 'src/main.py'."


@dataclass(frozen=True, slots=True)
class CodeFolder:
    """A code folder. `prefix` is its name and a slash, or "" if it is the only one."""

    prefix: str
    root: Path


class CodeFolders:
    """All code folders of a project."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.all = _name_folders(roots)

    def resolve(self, path: str) -> tuple[Path, tuple[str, ...]]:
        """Return the root that a path is below, and its parts there. No file is touched."""
        parts = _split_path(path)
        for folder in self.all:
            if not folder.prefix:
                return folder.root, parts
            name, *rest = parts
            if name == folder.prefix[:-1] and rest:
                return folder.root, tuple(rest)
        names = ", ".join(folder.prefix for folder in self.all)
        raise ToolRetry(f"'{_printable(path)}' is not in a code folder.", hint=f"Folders: {names}")


def is_test(path: str) -> bool:
    """Whether a path looks like a test, by its file or folder names."""
    return _TEST_PATH.search(path) is not None


def is_valid_name(name: str) -> bool:
    """Whether a file name can be part of a path."""
    return not _INVALID_CHARACTERS.search(name)


def is_ignored(root: Path, parts: Sequence[str]) -> bool:
    """Whether a walk would skip this file. Raises OSError if it is missing."""
    rules = IgnoreRules()
    for depth, part in enumerate(parts):
        with open_folder_below(root, parts[:depth]) as folder:
            read = partial(read_ignore_file, folder)
            rules = (
                rules.for_subfolder(parts[depth - 1], read) if depth else IgnoreRules.for_root(read)
            )
        if rules.is_ignored(part, is_folder=depth < len(parts) - 1):
            return True
    return False


def read_ignore_file(folder_fd: int, parts: tuple[str, ...]) -> bytes | None:
    """Return the ignore file below an open folder, or None."""
    opened_fds: list[int] = []
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder_fd)
            opened_fds.append(inner)
            folder_fd = inner
        return read_file_in(folder_fd, parts[-1], max_bytes=MAX_IGNORE_FILE_BYTES)[0]
    except OSError:
        return None
    finally:
        for fd in opened_fds:
            os.close(fd)


def _split_path(path: str) -> tuple[str, ...]:
    if len(path) > MAX_PATH_CHARS:
        raise ToolRetry(f"the path is longer than {MAX_PATH_CHARS} characters.")
    if _INVALID_CHARACTERS.search(path):
        raise ToolRetry(
            f"'{_printable(path)}' contains characters that are not allowed in a path.",
            hint=_PATH_HINT,
        )
    if path.startswith(("/", "~")) or re.match(r"[A-Za-z]:", path):
        raise AccessDenied(f"'{_printable(path)}' is an absolute path.", hint=_PATH_HINT)
    parts = PurePosixPath(path).parts
    if ".." in parts:
        raise AccessDenied(f"'{_printable(path)}' leads out of the code folder.", hint=_PATH_HINT)
    if any(part.startswith(".") for part in parts):
        raise AccessDenied(f"'{_printable(path)}' is hidden and therefore not indexed.")
    if not parts or len(parts) > MAX_DEPTH:
        raise ToolRetry(f"'{_printable(path)}' is not a valid file path.", hint=_PATH_HINT)
    return parts


def _name_folders(roots: Sequence[Path]) -> tuple[CodeFolder, ...]:
    if len(roots) == 1:
        return (CodeFolder("", roots[0]),)
    by_name: dict[str, Path] = {}
    for root in roots:
        base = _INVALID_CHARACTERS.sub("_", root.name).lstrip(".") or "root"
        name, number = base, 2
        while name in by_name:
            name, number = f"{base}-{number}", number + 1
        by_name[name] = root
    return tuple(CodeFolder(f"{name}/", root) for name, root in by_name.items())


def _printable(path: str) -> str:
    return _INVALID_CHARACTERS.sub("�", path[:80])


# -- opening files ---------------------------------------------------------------------------------

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


# -- walking ---------------------------------------------------------------------------------------

MAX_FILES: Final = 500_000


@dataclass(slots=True)
class FolderWalk:
    """A walk through one folder. `skipped` is a running count; an ignored folder counts once."""

    folder: CodeFolder
    max_bytes: int
    skipped: int = 0

    def files(self, parts: Sequence[str] = ()) -> Iterator[tuple[str, SourceStamp]]:
        """Yield the files at or below a path with their stamps, folder by folder.

        Raises OSError if the root is missing.
        """
        with open_folder_below(self.folder.root, ()) as top:
            rules = IgnoreRules.for_root(partial(read_ignore_file, top))
            yield from self._walk_path(top, parts, rules=rules, depth=1)

    def _walk_path(
        self, folder_fd: int, parts: Sequence[str], *, rules: IgnoreRules, depth: int
    ) -> Iterator[tuple[str, SourceStamp]]:
        if not parts:
            yield from self._walk_folder(folder_fd, rules, depth=depth)
            return
        name, *rest = parts
        try:
            status = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
        except OSError:  # removed
            return
        if stat.S_ISDIR(status.st_mode):
            yield from self._walk_subfolder(folder_fd, name, rest, rules=rules, depth=depth)
        elif not rest and self._is_indexable(name, status, rules):
            yield f"{self.folder.prefix}{rules.path}{name}", SourceStamp.of(status)

    def _walk_folder(
        self, folder_fd: int, rules: IgnoreRules, *, depth: int
    ) -> Iterator[tuple[str, SourceStamp]]:
        folders: list[str] = []
        with suppress(PermissionError), os.scandir(folder_fd) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                with suppress(OSError):  # removed meanwhile
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.name)
                        continue
                    status = entry.stat(follow_symlinks=False)
                    if self._is_indexable(entry.name, status, rules):
                        path = f"{self.folder.prefix}{rules.path}{entry.name}"
                        yield path, SourceStamp.of(status)
        for name in folders:
            yield from self._walk_subfolder(folder_fd, name, (), rules=rules, depth=depth)

    def _walk_subfolder(
        self, folder_fd: int, name: str, parts: Sequence[str], *, rules: IgnoreRules, depth: int
    ) -> Iterator[tuple[str, SourceStamp]]:
        if (
            depth >= MAX_DEPTH
            or not self._is_valid(name, rules)
            or rules.is_ignored(name, is_folder=True)
        ):
            self.skipped += 1
            return
        try:
            inner = os.open(name, FOLDER_FLAGS, dir_fd=folder_fd)
        except OSError:  # removed, replaced by a link, or unreadable
            self.skipped += 1
            return
        try:
            below = rules.for_subfolder(name, partial(read_ignore_file, inner))
            yield from self._walk_path(inner, parts, rules=below, depth=depth + 1)
        finally:
            os.close(inner)

    def _is_valid(self, name: str, rules: IgnoreRules) -> bool:
        if not is_utf8(name):
            warn_once(self.folder.root, f"{rules.path}{name}")
        return is_valid_name(name)

    def _is_indexable(self, name: str, status: os.stat_result, rules: IgnoreRules) -> bool:
        if (
            stat.S_ISREG(status.st_mode)
            and self._is_valid(name, rules)
            and status.st_size <= self.max_bytes
            and len(rules.path) + len(name) + len(self.folder.prefix) <= MAX_PATH_CHARS
            and not rules.is_ignored(name, is_folder=False)
        ):
            return True
        self.skipped += 1
        return False
