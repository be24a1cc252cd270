"""The folders of a project's code, and the paths in them as everybody else says them.

A path is relative to its folder; where there are several, it begins with the folder's name. It is a
model's word: what tries to leave the folders is denied, what is only wrong is told.
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
from dodona.tools.code.files.files import folder_below, read_in
from dodona.tools.code.files.ignore_rules import MOST_BYTES, IgnoreRules

LONGEST_PATH: Final = 1_000
DEEPEST: Final = 64

# Control characters, line separators, halves of surrogate pairs, and the other kind of slash.
_UNUSABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\\\\]")
_TEST = re.compile(r"(?:^|[/_.-])tests?(?:[/_.-]|$)|[a-z0-9]Tests?\.\w+$")
_EXAMPLE: Final = "Give a path as search_code returns it, such as 'src/main.py'."


@dataclass(frozen=True, slots=True)
class Folder:
    """`prefix` is the folder's name and a slash, or nothing when it is the only one."""

    prefix: str
    root: Path


class Folders:
    """All folders of a project."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.all = _named(roots)

    def find(self, path: str) -> tuple[Path, tuple[str, ...]]:
        """The root that a path is below, and its parts there. No file is touched."""
        parts = _parts(path)
        for folder in self.all:
            if not folder.prefix:
                return folder.root, parts
            name, *rest = parts
            if name == folder.prefix[:-1] and rest:
                return folder.root, tuple(rest)
        names = ", ".join(folder.prefix for folder in self.all)
        raise ToolRetry(f"'{_shown(path)}' is in no folder of the code.", hint=f"They are: {names}")


def is_test(path: str) -> bool:
    """Does a file hold tests, by a folder's name or its own?"""
    return _TEST.search(path) is not None


def is_usable(name: str) -> bool:
    """Can the name of a file be part of a path?"""
    return not _UNUSABLE.search(name)


def is_ignored(root: Path, parts: Sequence[str]) -> bool:
    """Would a walk pass this file over? OSError when it is not there."""
    rules = IgnoreRules()
    for depth, part in enumerate(parts):
        with folder_below(root, parts[:depth]) as folder:
            read = partial(read_rules, folder)
            rules = rules.below(parts[depth - 1], read) if depth else IgnoreRules.of_root(read)
        if rules.ignore(part, is_folder=depth < len(parts) - 1):
            return True
    return False


def read_rules(folder: int, parts: tuple[str, ...]) -> bytes | None:
    """A list of ignored files below an open folder; none when there is none."""
    opened: list[int] = []
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            opened.append(inner)
            folder = inner
        return read_in(folder, parts[-1], most=MOST_BYTES)[0]
    except OSError:
        return None
    finally:
        for each in opened:
            os.close(each)


def _parts(path: str) -> tuple[str, ...]:
    if len(path) > LONGEST_PATH:
        raise ToolRetry(f"the path is longer than {LONGEST_PATH} characters.")
    if _UNUSABLE.search(path):
        raise ToolRetry(f"'{_shown(path)}' holds characters that no path may have.", hint=_EXAMPLE)
    if path.startswith(("/", "~")) or re.match(r"[A-Za-z]:", path):
        raise AccessDenied(f"'{_shown(path)}' is an absolute path.", hint=_EXAMPLE)
    parts = PurePosixPath(path).parts
    if ".." in parts:
        raise AccessDenied(f"'{_shown(path)}' leads out of the code.", hint=_EXAMPLE)
    if any(part.startswith(".") for part in parts):
        raise AccessDenied(f"'{_shown(path)}' is hidden, and so no part of the code.")
    if not parts or len(parts) > DEEPEST:
        raise ToolRetry(f"'{_shown(path)}' is no path of a file.", hint=_EXAMPLE)
    return parts


def _named(roots: Sequence[Path]) -> tuple[Folder, ...]:
    if len(roots) == 1:
        return (Folder("", roots[0]),)
    taken: dict[str, Path] = {}
    for root in roots:
        plain = _UNUSABLE.sub("_", root.name).lstrip(".") or "root"
        name, number = plain, 2
        while name in taken:
            name, number = f"{plain}-{number}", number + 1
        taken[name] = root
    return tuple(Folder(f"{name}/", root) for name, root in taken.items())


def _shown(path: str) -> str:
    return _UNUSABLE.sub("�", path[:80])
