"""Prompts: Markdown templates, built in or from a project folder, reloaded when they change.

A project folder may be untrusted: `dodona.templates` limits what a template can do.
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

MAX_PROMPT_BYTES: Final = templates.MAX_RENDERED_CHARS

_PROMPT_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_MIN_CACHEABLE_AGE_NS = 50_000_000  # a newer file may change again with the same timestamp
_CACHE_SIZE = 256


class PromptLoader:
    """Loads prompts by name: `NAME.md` from a project folder, else the built-in one."""

    def __init__(self, builtin_folder: Path) -> None:
        self._builtin_folder = builtin_folder
        self._cache: dict[str, tuple[tuple[int, ...], str]] = {}

    def load(self, name: str, folder: Path | None, *, default: Path | None = None) -> str:
        """Return the current text of a prompt. Reads files, so it blocks.

        `default` is the file to use instead of a built-in one.
        """
        if not _PROMPT_NAME.fullmatch(name):
            raise ConfigError(f"{name!r:.80} is not a valid prompt name.")
        if folder is not None:
            # Links are not followed: in a copied folder they could point to any file on this host.
            text = self._read(folder / f"{name}.md", follow_symlinks=False)
            if text is not None:
                return text
        file = default or self._builtin_folder / f"{name}.md"
        text = self._read(file, follow_symlinks=True)
        if text is None:
            raise ConfigError(f"there is no prompt '{name}'.", where=SourceLocation(str(file)))
        return text

    def _read(self, file: Path, *, follow_symlinks: bool) -> str | None:
        """Return the text, from disk if the file has changed; None if there is no file."""
        path = os.fspath(file)
        try:
            cached = self._cache.get(path)
            file_stat = os.stat(path, follow_symlinks=follow_symlinks)
            if cached is not None and _signature(file_stat) == cached[0]:
                return cached[1]
            # Checked before opening: opening a pipe would block until there is a writer.
            if not stat.S_ISREG(file_stat.st_mode):
                raise ConfigError(
                    "a prompt must be a regular file, not a link.", where=SourceLocation(path)
                )
            return self._read_from_disk(path, 0 if follow_symlinks else os.O_NOFOLLOW)
        except (FileNotFoundError, NotADirectoryError):
            self._cache.pop(path, None)
            return None
        except OSError as error:
            raise ConfigError(
                f"the prompt cannot be read: {error.strerror}.", where=SourceLocation(path)
            ) from error

    def _read_from_disk(self, path: str, flags: int) -> str:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags)
        with open(descriptor, "rb") as file:
            file_stat = os.fstat(descriptor)
            body = file.read(MAX_PROMPT_BYTES + 1)
        text = _decode(body, path)
        if abs(time_ns() - file_stat.st_mtime_ns) > _MIN_CACHEABLE_AGE_NS:
            if len(self._cache) >= _CACHE_SIZE:
                self._cache.clear()
            self._cache[path] = (_signature(file_stat), text)
        return text


def render(text: str, values: Mapping[str, Any], *, file: str = "prompt") -> str:
    """Render a prompt template with values; `file` is the name used in error messages."""
    return templates.render(text, values, label="prompt", file=file)


def _signature(file_stat: os.stat_result) -> tuple[int, ...]:
    return file_stat.st_mtime_ns, file_stat.st_size, file_stat.st_ino, file_stat.st_dev


def _decode(body: bytes, path: str) -> str:
    if len(body) > MAX_PROMPT_BYTES:
        raise ConfigError(
            f"a prompt must not exceed {MAX_PROMPT_BYTES // 1024} KB.",
            where=SourceLocation(path),
        )
    try:
        return body.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            "a prompt must be UTF-8 text.",
            where=SourceLocation(path, line),
            hint="Save it as UTF-8.",
        ) from error
