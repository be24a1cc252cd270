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
from dodona.core.errors import ConfigError, SourceLocation

MAX_PROMPT_BYTES: Final = templates.MAX_RENDERED_CHARS  # bytes of a file

_PROMPT_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_MIN_CACHEABLE_AGE_NS = 50_000_000  # ns: a file this young may change again under the same time
_CACHE_SIZE = 256


class PromptLoader:
    """The texts of prompts by name: `NAME.md` in a project's folder, else the shipped one."""

    def __init__(self, builtin_folder: Path) -> None:
        self._builtin_folder = builtin_folder
        self._cache: dict[str, tuple[tuple[int, ...], str]] = {}

    def load(self, name: str, folder: Path | None) -> str:
        """The text as it is now. It looks at files, and so blocks."""
        if not _PROMPT_NAME.fullmatch(name):
            raise ConfigError(f"{name!r:.80} is no name for a prompt.")
        if folder is not None:
            # Links are not followed: a copied folder could name any file of this machine's.
            found = self._read(folder / f"{name}.md", follow_symlinks=False)
            if found is not None:
                return found
        file = self._builtin_folder / f"{name}.md"
        found = self._read(file, follow_symlinks=True)
        if found is None:
            raise ConfigError(f"there is no prompt '{name}'.", where=SourceLocation(str(file)))
        return found

    def _read(self, file: Path, *, follow_symlinks: bool) -> str | None:
        """The file's text, from the disk if it has changed; None when there is none."""
        path = os.fspath(file)
        try:
            known = self._cache.get(path)
            found = os.stat(path, follow_symlinks=follow_symlinks)
            if known is not None and _signature(found) == known[0]:
                return known[1]
            # Before it is opened: opening a pipe would wait for whoever writes to it.
            if not stat.S_ISREG(found.st_mode):
                raise ConfigError(
                    "a prompt must be a file, and no link.", where=SourceLocation(path)
                )
            return self._read_from_disk(path, 0 if follow_symlinks else os.O_NOFOLLOW)
        except (FileNotFoundError, NotADirectoryError):
            self._cache.pop(path, None)
            return None
        except OSError as wrong:
            raise ConfigError(
                f"the prompt cannot be read: {wrong.strerror}.", where=SourceLocation(path)
            ) from wrong

    def _read_from_disk(self, path: str, flags: int) -> str:
        opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags)
        with open(opened, "rb") as file:
            found = os.fstat(opened)
            body = file.read(MAX_PROMPT_BYTES + 1)
        text = _decode(body, path)
        if abs(time_ns() - found.st_mtime_ns) > _MIN_CACHEABLE_AGE_NS:
            if len(self._cache) >= _CACHE_SIZE:
                self._cache.clear()
            self._cache[path] = (_signature(found), text)
        return text


def render(text: str, values: Mapping[str, Any], *, file: str = "prompt") -> str:
    """The prompt with its values; `file` is what a mistake is reported in."""
    return templates.render(text, values, label="prompt", file=file)


def _signature(file_stat: os.stat_result) -> tuple[int, ...]:
    return file_stat.st_mtime_ns, file_stat.st_size, file_stat.st_ino, file_stat.st_dev


def _decode(body: bytes, path: str) -> str:
    if len(body) > MAX_PROMPT_BYTES:
        raise ConfigError(
            f"a prompt must not be longer than {MAX_PROMPT_BYTES // 1024} KB.",
            where=SourceLocation(path),
        )
    try:
        return body.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as wrong:
        line = body.count(b"\n", 0, wrong.start) + 1
        raise ConfigError(
            "a prompt must be UTF-8 text.",
            where=SourceLocation(path, line),
            hint="Save it as UTF-8.",
        ) from wrong
