"""Changes values in a TOML text, and leaves the rest as it stands: comments, order, spelling.

    edited(text, {("agent", "model"): "qwen3", ("log", "level"): None})

None takes a key or a section out. What was made is read again: a text that would not say what was
asked for, and all else as before, is never given back.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time
from itertools import pairwise
from typing import Any, cast

from dodona.core.errors import ConfigError
from dodona.documents.model_shape import dotted
from dodona.documents.toml_lines import KeyPath, Walk

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def written(value: Any) -> str:
    """The value in one line of TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # TOML's escapes are JSON's, but for one character that JSON leaves as it is.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        inside = ", ".join(f"{written_key((key,))} = {written(below)}" for key, below in pairs)
        return f"{{ {inside} }}" if inside else "{}"
    return f"[{', '.join(written(each) for each in cast('Sequence[Any]', value))}]"


def written_key(path: KeyPath) -> str:
    """The names of a path between points; places in arrays have none."""
    names = [name for name in path if isinstance(name, str)]
    return ".".join(name if _BARE.fullmatch(name) else written(name) for name in names)


_BY_HAND = "Change it by hand."


def edited(text: str, changes: Mapping[KeyPath, Any]) -> str:
    """The text with these values at these paths; it must be TOML."""
    wanted = tomllib.loads(text)
    has_crlf = "\r\n" in text
    for path, value in changes.items():
        _apply(wanted, path, value)
        text = _Text(text, has_crlf=has_crlf).changed(path, value)
    if not _says(text, wanted):
        names = ", ".join(dotted(path) for path in changes)
        raise ConfigError(f"{names} cannot be changed in place.", hint=_BY_HAND)
    return text


@dataclass(frozen=True, slots=True)
class _Statement:
    """A header, or a key with its value. Of a header, `table` is its own path."""

    path: KeyPath
    table: KeyPath
    start: int
    value: tuple[int, int] | None = None

    def is_below(self, path: KeyPath) -> bool:
        return self.path[: len(path)] == path


class _Statements(Walk):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.found: list[_Statement] = []

    def on_header(self, path: KeyPath, start: int) -> None:
        self.found.append(_Statement(path, path, start))

    def on_pair(self, table: KeyPath, path: KeyPath, start: int, value: tuple[int, int]) -> None:
        self.found.append(_Statement(path, table, start, value))


class _Text:
    def __init__(self, text: str, *, has_crlf: bool) -> None:
        walk = _Statements(text)
        walk.read()
        self._text = text
        self._line_end = "\r\n" if has_crlf else "\n"
        self._found = walk.found

    def changed(self, path: KeyPath, value: Any) -> str:
        for each in self._found:
            if each.value and each.path == path[: len(each.path)]:
                return self._revalued(each, path, value)
        below = [place for place, each in enumerate(self._found) if each.is_below(path)]
        if value is None:
            return self._without(below)
        if below:
            raise ConfigError(f"{dotted(path)} is a section.", hint="Name a key in it.")
        return self._added(path, value)

    # -- keys that are there -----------------------------------------------------------------

    def _revalued(self, pair: _Statement, path: KeyPath, value: Any) -> str:
        assert pair.value
        start, end = pair.value
        end = start + len(self._text[start:end].rstrip())
        old = self._text[start:end]
        if pair.path == path:
            if value is None:
                return self._cut([(self._line_start(pair), self._line_end_after(end))])
        else:
            if "\n" in old and "#" in old:
                raise ConfigError(
                    f"{dotted(pair.path)} has comments that would be lost.", hint=_BY_HAND
                )
            inside = {"": tomllib.loads(f"x = {old}")["x"]}
            _apply(inside, ("", *path[len(pair.path) :]), value)
            value = inside[""]
        return f"{self._text[:start]}{written(value)}{self._text[end:]}"

    def _without(self, places: list[int]) -> str:
        """The text without these statements; a header takes all of its section along."""
        spans: list[tuple[int, int]] = []
        for place in places:
            each = self._found[place]
            last = each if each.value else self._found[self._block_end(place)]
            spans.append((self._line_start(each), self._line_end_of(last)))
        return self._cut(spans)

    def _cut(self, spans: list[tuple[int, int]]) -> str:
        kept: list[str] = []
        at = 0
        for start, end in spans:
            kept.append(self._text[at : max(at, start)])
            at = max(at, end)
        return "".join((*kept, self._text[at:]))

    # -- keys that are new -------------------------------------------------------------------

    def _added(self, path: KeyPath, value: Any) -> str:
        above, key = path[:-1], path[-1]
        if isinstance(key, int):
            if not isinstance(value, Mapping):
                raise ConfigError(f"{dotted(path)} must be a section.", hint=_BY_HAND)
            return self._new_section(path, cast("Mapping[str, Any]", value))
        for place, each in enumerate(self._found):
            if each.value is None and each.path == above:
                return self._new_line(self._block_end(place), written_key((key,)), value)
        for place in range(len(self._found) - 1, -1, -1):
            each = self._found[place]
            if each.value and each.is_below(above) and len(each.table) < max(len(above), 1):
                return self._new_line(place, written_key(path[len(each.table) :]), value)
        if not above:
            return self._inserted(0, f"{written_key(path)} = {written(value)}\n")
        return self._new_section(above, {key: value})

    def _new_line(self, after: int, key: str, value: Any) -> str:
        at = self._line_end_of(self._found[after])
        return self._inserted(at, f"{key} = {written(value)}\n")

    def _new_section(self, path: KeyPath, values: Mapping[str, Any]) -> str:
        header = f"[{written_key(path)}]"
        if isinstance(path[-1], int):
            header = f"[{header}]"
        pairs = "".join(f"{written_key((k,))} = {written(v)}\n" for k, v in values.items())
        below = [place for place, each in enumerate(self._found) if each.is_below(path)]
        if below:
            at = self._above_comments(self._line_start(self._found[below[0]]))
            return self._inserted(at, f"{header}\n{pairs}\n")
        at = self._end_of_kin(path)
        before = "" if not at or self._text[:at].endswith(("\n\n", "\r\n\r\n")) else "\n"
        after = "" if self._text[at:].lstrip(" \t")[:1] in ("", "\r", "\n") else "\n"
        return self._inserted(at, f"{before}{header}\n{pairs}{after}")

    def _end_of_kin(self, path: KeyPath) -> int:
        """Behind the last section that has most of this path in common; the very end, if none."""
        for length in range(len(path) - 1, 0, -1):
            near = [n for n, each in enumerate(self._found) if each.is_below(path[:length])]
            if near:
                return self._line_end_of(self._found[self._block_end(near[-1])])
        return len(self._text)

    # -- places ------------------------------------------------------------------------------

    def _inserted(self, at: int, lines: str) -> str:
        before, after = self._text[:at], self._text[at:]
        gap = self._line_end if before and not before.endswith("\n") else ""
        return "".join((before, gap, lines.replace("\n", self._line_end), after))

    def _block_end(self, place: int) -> int:
        """The last statement before the next header."""
        while place + 1 < len(self._found) and self._found[place + 1].value:
            place += 1
        return place

    def _line_start(self, each: _Statement) -> int:
        return self._text.rfind("\n", 0, each.start) + 1

    def _line_end_of(self, each: _Statement) -> int:
        return self._line_end_after(each.value[1] if each.value else each.start)

    def _line_end_after(self, at: int) -> int:
        end = self._text.find("\n", at)
        return len(self._text) if end < 0 else end + 1

    def _above_comments(self, at: int) -> int:
        """Where the comments begin that stand right above this line."""
        while at:
            start = self._text.rfind("\n", 0, at - 1) + 1
            if not self._text[start:at].lstrip().startswith("#"):
                break
            at = start
        return at


def _apply(table: Any, path: KeyPath, value: Any) -> None:
    """The same change in what was read."""
    here = table
    for name, following in pairwise(path):
        if _get(here, name) is None:
            if value is None:
                return
            _put(here, name, [] if isinstance(following, int) else {})
        here = _get(here, name)
        if not isinstance(here, dict | list):
            raise ConfigError(f"{dotted(path)} cannot be set: {name} is no section.", hint=_BY_HAND)
    if value is not None:
        _put(here, path[-1], value)
    elif _get(here, path[-1]) is not None:
        del cast("Any", here)[path[-1]]


def _get(here: Any, name: str | int) -> Any:
    if isinstance(here, list) and isinstance(name, int):
        found = cast("list[Any]", here)[name : name + 1]
        return found[0] if found else None
    return cast("dict[str, Any]", here).get(str(name)) if isinstance(here, dict) else None


def _put(here: Any, name: str | int, value: Any) -> None:
    if isinstance(here, list) and isinstance(name, int):
        elements = cast("list[Any]", here)
        if name > len(elements):
            raise ConfigError(f"there are only {len(elements)} of them.", hint="Count from 0.")
        elements[name : name + 1] = [value]
    elif isinstance(here, dict) and isinstance(name, str):
        here[name] = value
    else:
        raise ConfigError(f"{name} cannot be set there.", hint=_BY_HAND)


def _says(text: str, wanted: Any) -> bool:
    try:
        return _gist(tomllib.loads(text)) == _gist(wanted)
    except ValueError:
        return False


def _gist(value: Any) -> Any:
    """What a table says: the order of keys and sections without any keys say nothing."""
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        said = {key: gist for key, below in table.items() if (gist := _gist(below)) is not None}
        return said or None
    if isinstance(value, list | tuple):
        return [_gist(each) for each in cast("list[Any]", value)] or None
    return type(value), repr(value)
