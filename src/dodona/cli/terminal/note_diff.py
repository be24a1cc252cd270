"""The differences between versions of a note."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from difflib import unified_diff
from typing import Final

from dodona.cli.terminal.output import REDACTOR, print_text
from dodona.cli.terminal.screen import strip_control_chars
from dodona.core.domain.knowledge.notes import NoteHistoryEntry, Notes
from dodona.core.errors import Conflict, NotFound

MAX_SEARCHED: Final = 1_000  # entries of a note in which a version is searched

_COLOURS: Final = {"+": "32", "-": "31", "@": "36"}


async def diff_versions(vault: Notes, path: str, old: int | None, new: int | None) -> list[str]:
    """Return the lines of a unified diff, by default of the last change of a note.

    `old` is compared with `new`, or with the file.
    """
    if old is None:
        return await _diff_last_change(vault, path)
    before = await vault.version(old)
    if new is None:
        note = await vault.read(path)
        return _diff(before.text, note.text, (_name(path, old), f"{path} (file)"))
    after = await vault.version(new)
    return _diff(before.text, after.text, (_name(path, old), _name(path, new)))


def print_diff(lines: Sequence[str]) -> None:
    """Print a diff without secrets and control characters, in colours on a terminal."""
    has_colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for line in REDACTOR.scrub(strip_control_chars("\n".join(lines))).split("\n"):
        code = _COLOURS.get(line[:1]) if has_colours else None
        print_text(f"\x1b[{code}m{line}\x1b[0m" if code else line)


async def _diff_last_change(vault: Notes, path: str) -> list[str]:
    entries = await vault.history(path, MAX_SEARCHED)
    versions = [entry for entry in entries if entry.from_path is None]
    if not versions:
        raise NotFound(f"there are no versions of '{path}'.")
    last = versions[0]
    old = await _read(vault, versions, last.old_version)
    new = await _read(vault, versions, last.version)
    return _diff(old, new, (f"{path} (before)", _name(path, last.id)))


async def _read(vault: Notes, entries: Sequence[NoteHistoryEntry], version: str) -> str:
    """Return the text of a version; without one, the note did not exist."""
    if not version:
        return ""
    for entry in entries:
        if entry.version == version:
            return (await vault.version(entry.id)).text
    raise Conflict("the text before the last change is not stored any more.")


def _name(path: str, number: int) -> str:
    return f"{path} (change {number})"


def _diff(old: str, new: str, names: tuple[str, str]) -> list[str]:
    return [*unified_diff(old.split("\n"), new.split("\n"), *names, lineterm="")]
