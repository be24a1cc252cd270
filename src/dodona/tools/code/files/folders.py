"""The code folders of a project, and the paths of files in them.

A path is relative to its folder; with several folders it starts with the folder's name. Paths come
from the model: one that tries to leave the folders is denied, an invalid one is reported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Final

from dodona.core.errors import AccessDenied, ToolRetry
from dodona.tools.code.files.files import open_folder_below, read_file_in
from dodona.tools.code.files.ignore_rules import MAX_IGNORE_FILE_BYTES, IgnoreRules

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
