"""Every file of a folder of code with its stamp: what is ignored is passed over, and counted.

Links are not followed, so there are no circles. A folder that we may not look into is passed over.
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
    """A walk through one folder. `skipped` counts as it goes on; an ignored folder is one."""

    folder: CodeFolder
    max_bytes: int
    skipped: int = 0

    def files(self) -> Iterator[tuple[str, SourceStamp]]:
        """Paths with stamps, folder by folder. OSError when the folder itself is not there."""
        with open_folder_below(self.folder.root, ()) as top:
            rules = IgnoreRules.for_root(partial(read_ignore_file, top))
            yield from self._walk_folder(top, rules, depth=1)

    def _walk_folder(
        self, folder_fd: int, rules: IgnoreRules, *, depth: int
    ) -> Iterator[tuple[str, SourceStamp]]:
        folders: list[str] = []
        with suppress(PermissionError), os.scandir(folder_fd) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                with suppress(OSError):  # gone since
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
        except OSError:  # gone, a link by now, or not ours to see
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
        """The stamp of a file that may be code."""
        name = entry.name
        if entry.is_file(follow_symlinks=False) and is_valid_name(name):
            found = entry.stat(follow_symlinks=False)
            is_short = len(rules.path) + len(name) + len(self.folder.prefix) <= MAX_PATH_CHARS
            is_small = found.st_size <= self.max_bytes
            if is_small and is_short and not rules.is_ignored(name, is_folder=False):
                return SourceStamp.of(found)
        self.skipped += 1
        return None
