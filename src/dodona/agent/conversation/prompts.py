"""Prompts: Markdown templates, shipped or a project's own, read again when they change.

A project's folder may be somebody else's work: see `dodona.templates` for what one may say.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from time import time_ns
from typing import Any, Final

from dodona import templates
from dodona.core.errors import ConfigError, Location

LONGEST_PROMPT: Final = templates.LONGEST  # bytes of a file

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_UNSETTLED = 50_000_000  # ns: a file this young may change again under the same time
_REMEMBERED_FILES = 256


class PromptLoader:
    """The texts of prompts by name: `NAME.md` in a project's folder, else the shipped one."""

    def __init__(self, shipped: Path) -> None:
        self._shipped = shipped
        self._known: dict[str, tuple[tuple[int, ...], str]] = {}

    def text(self, name: str, folder: Path | None) -> str:
        """The text as it is now. It looks at files, and so blocks."""
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{name!r:.80} is no name for a prompt.")
        if folder is not None:
            # Links are not followed: a copied folder could name any file of this machine's.
            found = self._read(folder / f"{name}.md", follow=False)
            if found is not None:
                return found
        file = self._shipped / f"{name}.md"
        found = self._read(file, follow=True)
        if found is None:
            raise ConfigError(f"there is no prompt '{name}'.", where=Location(str(file)))
        return found

    def _read(self, file: Path, *, follow: bool) -> str | None:
        """The file's text, from the disk if it has changed; None when there is none."""
        path = os.fspath(file)
        try:
            known = self._known.get(path)
            found = os.stat(path, follow_symlinks=follow)
            if known is not None and _signature(found) == known[0]:
                return known[1]
            # Before it is opened: opening a pipe would wait for whoever writes to it.
            if not stat.S_ISREG(found.st_mode):
                raise ConfigError("a prompt must be a file, and no link.", where=Location(path))
            return self._read_now(path, 0 if follow else os.O_NOFOLLOW)
        except (FileNotFoundError, NotADirectoryError):
            self._known.pop(path, None)
            return None
        except OSError as wrong:
            raise ConfigError(
                f"the prompt cannot be read: {wrong.strerror}.", where=Location(path)
            ) from wrong

    def _read_now(self, path: str, flags: int) -> str:
        opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags)
        with open(opened, "rb") as file:
            found = os.fstat(opened)
            body = file.read(LONGEST_PROMPT + 1)
        text = _decoded(body, path)
        if abs(time_ns() - found.st_mtime_ns) > _UNSETTLED:
            if len(self._known) >= _REMEMBERED_FILES:
                self._known.clear()
            self._known[path] = (_signature(found), text)
        return text


def render(text: str, values: Mapping[str, Any], *, file: str = "prompt") -> str:
    """The prompt with its values; `file` is what a mistake is reported in."""
    return templates.render(text, values, what="prompt", file=file)


def _signature(found: os.stat_result) -> tuple[int, ...]:
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev


def _decoded(body: bytes, path: str) -> str:
    if len(body) > LONGEST_PROMPT:
        raise ConfigError(
            f"a prompt must not be longer than {LONGEST_PROMPT // 1024} KB.", where=Location(path)
        )
    try:
        return body.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as wrong:
        line = body.count(b"\n", 0, wrong.start) + 1
        raise ConfigError(
            "a prompt must be UTF-8 text.", where=Location(path, line), hint="Save it as UTF-8."
        ) from wrong
