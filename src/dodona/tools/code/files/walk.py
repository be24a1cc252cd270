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

from dodona.tools.code.files.files import FOLDER_FLAGS, Stamp, folder_below
from dodona.tools.code.files.folders import DEEPEST, LONGEST_PATH, Folder, is_usable, read_rules
from dodona.tools.code.files.ignore_rules import IgnoreRules

MOST_FILES: Final = 500_000


@dataclass(slots=True)
class Walk:
    """A walk through one folder. `skipped` counts as it goes on; an ignored folder is one."""

    folder: Folder
    max_bytes: int
    skipped: int = 0

    def files(self) -> Iterator[tuple[str, Stamp]]:
        """Paths with stamps, folder by folder. OSError when the folder itself is not there."""
        with folder_below(self.folder.root, ()) as top:
            rules = IgnoreRules.of_root(partial(read_rules, top))
            yield from self._in(top, rules, depth=1)

    def _in(self, folder: int, rules: IgnoreRules, *, depth: int) -> Iterator[tuple[str, Stamp]]:
        folders: list[str] = []
        with suppress(PermissionError), os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                with suppress(OSError):  # gone since
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.name)
                    elif (stamp := self._wanted(entry, rules)) is not None:
                        yield f"{self.folder.prefix}{rules.path}{entry.name}", stamp
        for name in folders:
            if depth >= DEEPEST or not is_usable(name) or rules.ignore(name, is_folder=True):
                self.skipped += 1
                continue
            yield from self._below(folder, name, rules=rules, depth=depth)

    def _below(
        self, folder: int, name: str, *, rules: IgnoreRules, depth: int
    ) -> Iterator[tuple[str, Stamp]]:
        try:
            inner = os.open(name, FOLDER_FLAGS, dir_fd=folder)
        except OSError:  # gone, a link by now, or not ours to see
            self.skipped += 1
            return
        try:
            below = rules.below(name, partial(read_rules, inner))
            yield from self._in(inner, below, depth=depth + 1)
        finally:
            os.close(inner)

    def _wanted(self, entry: os.DirEntry[str], rules: IgnoreRules) -> Stamp | None:
        """The stamp of a file that may be code."""
        name = entry.name
        if entry.is_file(follow_symlinks=False) and is_usable(name):
            found = entry.stat(follow_symlinks=False)
            is_short = len(rules.path) + len(name) + len(self.folder.prefix) <= LONGEST_PATH
            is_small = found.st_size <= self.max_bytes
            if is_small and is_short and not rules.ignore(name, is_folder=False):
                return Stamp.of(found)
        self.skipped += 1
        return None
