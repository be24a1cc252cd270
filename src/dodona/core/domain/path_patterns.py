"""Patterns of paths: `*` and `?` match within a name, `**` matches any number of folders."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Final

MAX_PATTERN_CHARS: Final = 512


class PathPatterns:
    """Matches the relative paths of files and folders that one of the patterns names.

    What a folder contains is matched with it. Case and Unicode encoding are ignored, as by many
    file systems.
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self.patterns = tuple(patterns)
        joined = "|".join("".join(_translate(_fold(each))) for each in self.patterns)
        self._regex = re.compile(f"(?:{joined})(?:/.*)?", re.DOTALL) if joined else None

    def __bool__(self) -> bool:
        return self._regex is not None

    def match(self, path: str) -> bool:
        """Whether a pattern matches the path or a folder above it."""
        return self._regex is not None and self._regex.fullmatch(_fold(path)) is not None


NO_PATTERNS: Final = PathPatterns()


def find_problem(pattern: str) -> str:
    """Return the problem of an invalid pattern, or ""."""
    if len(pattern) > MAX_PATTERN_CHARS:
        return f"must have at most {MAX_PATTERN_CHARS} characters"
    if pattern.startswith(("/", "~")) or "\\" in pattern:
        return "must be relative to the folder, with / between names"
    parts = pattern.removesuffix("/").split("/")
    if any(part in {"", ".", ".."} for part in parts):
        return "must not contain empty names, . or .."
    if any("**" in part and part != "**" for part in parts):
        return "must have ** as a whole name, such as Clippings/**"
    return ""


def _fold(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()


def _translate(pattern: str) -> Iterator[str]:
    """Yield the regular expression of a pattern."""
    *folders, last = pattern.removesuffix("/").split("/")
    for folder in folders:
        yield "(?:[^/]+/)*" if folder == "**" else f"{_translate_name(folder)}/"
    yield ".+" if last == "**" else _translate_name(last)


def _translate_name(name: str) -> str:
    wildcards = {"*": "[^/]*", "?": "[^/]"}
    return "".join(wildcards.get(char) or re.escape(char) for char in name)
