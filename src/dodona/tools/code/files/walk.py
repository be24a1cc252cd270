"""Walks a code folder and yields each file with its stamp; ignored files are counted.

Links are not followed, so there are no cycles. Unreadable folders are skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
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

    def files(self) -> Iterator[tuple[str, SourceStamp]]:
        """Yield paths with stamps, folder by folder. Raises OSError if the root is missing."""
        with open_folder_below(self.folder.root, ()) as top:
            rules = IgnoreRules.for_root(partial(read_ignore_file, top))
            yield from self._walk_folder(top, rules, depth=1)

    def _walk_folder(
        self, folder_fd: int, rules: IgnoreRules, *, depth: int
    ) -> Iterator[tuple[str, SourceStamp]]:
        folders: list[str] = []
        with suppress(PermissionError), os.scandir(folder_fd) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                with suppress(OSError):  # removed meanwhile
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.name)
                    elif (stamp := self._stamp_if_indexable(entry, rules)) is not None:
                        yield f"{self.folder.prefix}{rules.path}{entry.name}", stamp
        for name in folders:
            if (
                depth >= MAX_DEPTH
                or not is_valid_name(name)
                or rules.is_ignored(name, is_folder=True)
            ):
                self.skipped += 1
                continue
            yield from self._walk_subfolder(folder_fd, name, rules=rules, depth=depth)

    def _walk_subfolder(
        self, folder_fd: int, name: str, *, rules: IgnoreRules, depth: int
    ) -> Iterator[tuple[str, SourceStamp]]:
        try:
            inner = os.open(name, FOLDER_FLAGS, dir_fd=folder_fd)
        except OSError:  # removed, replaced by a link, or unreadable
            self.skipped += 1
            return
        try:
            below = rules.for_subfolder(name, partial(read_ignore_file, inner))
            yield from self._walk_folder(inner, below, depth=depth + 1)
        finally:
            os.close(inner)

    def _stamp_if_indexable(
        self, entry: os.DirEntry[str], rules: IgnoreRules
    ) -> SourceStamp | None:
        """Return the stamp of a file that should be indexed, else None."""
        name = entry.name
        if entry.is_file(follow_symlinks=False) and is_valid_name(name):
            status = entry.stat(follow_symlinks=False)
            is_short = len(rules.path) + len(name) + len(self.folder.prefix) <= MAX_PATH_CHARS
            is_small = status.st_size <= self.max_bytes
            if is_small and is_short and not rules.is_ignored(name, is_folder=False):
                return SourceStamp.of(status)
        self.skipped += 1
        return None
