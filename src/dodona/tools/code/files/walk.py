"""Walks a code folder and yields each file with its stamp; ignored files are counted.

Links are not followed, so there are no cycles. Unreadable folders are skipped.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from dodona.tools.code.files.files import FOLDER_FLAGS, SourceStamp, open_folder_below
from dodona.tools.code.files.folders import (
    MAX_DEPTH,
    MAX_PATH_CHARS,
    CodeFolder,
    is_valid_name,
    read_ignore_file,
)
from dodona.tools.code.files.ignore_rules import IgnoreRules

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
        if depth >= MAX_DEPTH or not is_valid_name(name) or rules.is_ignored(name, is_folder=True):
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

    def _is_indexable(self, name: str, status: os.stat_result, rules: IgnoreRules) -> bool:
        if (
            stat.S_ISREG(status.st_mode)
            and is_valid_name(name)
            and status.st_size <= self.max_bytes
            and len(rules.path) + len(name) + len(self.folder.prefix) <= MAX_PATH_CHARS
            and not rules.is_ignored(name, is_folder=False)
        ):
            return True
        self.skipped += 1
        return False
