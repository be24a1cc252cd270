"""Change values in a TOML text and preserve everything else: comments, order, formatting.

    edit_toml(text, {("agent", "model"): "qwen3", ("log", "level"): None})

None removes a key or a section. The result is parsed again and compared with the requested
values; if it differs, a ConfigError is raised instead.
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
from dodona.documents.model_shape import dotted_key
from dodona.documents.toml_lines import KeyPath, TomlWalker

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def format_toml_value(value: Any) -> str:
    """Format a value as one line of TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # TOML escapes strings as JSON does, except for DEL, which JSON does not escape.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        content = ", ".join(
            f"{format_toml_key((key,))} = {format_toml_value(below)}" for key, below in pairs
        )
        return f"{{ {content} }}" if content else "{}"
    return f"[{', '.join(format_toml_value(each) for each in cast('Sequence[Any]', value))}]"


def format_toml_key(path: KeyPath) -> str:
    """Format a path as a TOML key. Array indexes are left out."""
    names = [name for name in path if isinstance(name, str)]
    return ".".join(name if _BARE.fullmatch(name) else format_toml_value(name) for name in names)


_EDIT_BY_HAND_HINT = "Edit the file by hand."


def edit_toml(text: str, changes: Mapping[KeyPath, Any]) -> str:
    """Return the text with these values at these paths. The text must be valid TOML."""
    expected = tomllib.loads(text)
    has_crlf = "\r\n" in text
    for path, value in changes.items():
        _apply(expected, path, value)
        text = _EditableText(text, has_crlf=has_crlf).with_value(path, value)
    if not _parses_to(text, expected):
        names = ", ".join(dotted_key(path) for path in changes)
        raise ConfigError(f"{names} cannot be changed automatically.", hint=_EDIT_BY_HAND_HINT)
    return text


@dataclass(frozen=True, slots=True)
class _Statement:
    """A section header, or a key with its value. For a header, `table` equals `path`."""

    path: KeyPath
    table: KeyPath
    start: int
    value: tuple[int, int] | None = None

    def is_below(self, path: KeyPath) -> bool:
        return self.path[: len(path)] == path


class _EditableText(TomlWalker):
    def __init__(self, text: str, *, has_crlf: bool) -> None:
        super().__init__(text)
        self._newline = "\r\n" if has_crlf else "\n"
        self._statements: list[_Statement] = []
        self.read()

    def on_header(self, path: KeyPath, start: int) -> None:
        self._statements.append(_Statement(path, path, start))

    def on_pair(self, table: KeyPath, path: KeyPath, start: int, value: tuple[int, int]) -> None:
        self._statements.append(_Statement(path, table, start, value))

    def with_value(self, path: KeyPath, value: Any) -> str:
        for each in self._statements:
            if each.value and each.path == path[: len(each.path)]:
                return self._with_replaced_value(each, path, value)
        below = [index for index, each in enumerate(self._statements) if each.is_below(path)]
        if value is None:
            return self._without_statements(below)
        if below:
            raise ConfigError(f"{dotted_key(path)} is a section.", hint="Name one of its keys.")
        return self._with_new_key(path, value)

    # -- existing keys -----------------------------------------------------------------------

    def _with_replaced_value(self, pair: _Statement, path: KeyPath, value: Any) -> str:
        assert pair.value
        start, end = pair.value
        end = start + len(self._text[start:end].rstrip())
        old = self._text[start:end]
        if pair.path == path:
            if value is None:
                return self._without_spans([(self._line_start(pair), self._line_end_after(end))])
        else:
            if "\n" in old and "#" in old:
                raise ConfigError(
                    f"{dotted_key(pair.path)} contains comments that would be lost.",
                    hint=_EDIT_BY_HAND_HINT,
                )
            wrapper = {"": tomllib.loads(f"x = {old}")["x"]}
            _apply(wrapper, ("", *path[len(pair.path) :]), value)
            value = wrapper[""]
        return f"{self._text[:start]}{format_toml_value(value)}{self._text[end:]}"

    def _without_statements(self, indexes: list[int]) -> str:
        """Return the text without these statements. Removing a header removes its section."""
        spans: list[tuple[int, int]] = []
        for index in indexes:
            each = self._statements[index]
            last = each if each.value else self._statements[self._last_of_section(index)]
            spans.append((self._line_start(each), self._line_end_of(last)))
        return self._without_spans(spans)

    def _without_spans(self, spans: list[tuple[int, int]]) -> str:
        pieces: list[str] = []
        position = 0
        for start, end in spans:
            pieces.append(self._text[position : max(position, start)])
            position = max(position, end)
        return "".join((*pieces, self._text[position:]))

    # -- new keys ----------------------------------------------------------------------------

    def _with_new_key(self, path: KeyPath, value: Any) -> str:
        above, key = path[:-1], path[-1]
        if isinstance(key, int):
            if not isinstance(value, Mapping):
                raise ConfigError(f"{dotted_key(path)} must be a section.", hint=_EDIT_BY_HAND_HINT)
            return self._with_new_section(path, cast("Mapping[str, Any]", value))
        for index, each in enumerate(self._statements):
            if each.value is None and each.path == above:
                return self._with_new_line(
                    self._last_of_section(index), format_toml_key((key,)), value
                )
        for index in range(len(self._statements) - 1, -1, -1):
            each = self._statements[index]
            if each.value and each.is_below(above) and len(each.table) < max(len(above), 1):
                return self._with_new_line(index, format_toml_key(path[len(each.table) :]), value)
        if not above:
            return self._with_inserted_lines(
                0, f"{format_toml_key(path)} = {format_toml_value(value)}\n"
            )
        return self._with_new_section(above, {key: value})

    def _with_new_line(self, after: int, key: str, value: Any) -> str:
        position = self._line_end_of(self._statements[after])
        return self._with_inserted_lines(position, f"{key} = {format_toml_value(value)}\n")

    def _with_new_section(self, path: KeyPath, values: Mapping[str, Any]) -> str:
        header = f"[{format_toml_key(path)}]"
        if isinstance(path[-1], int):
            header = f"[{header}]"
        pairs = "".join(
            f"{format_toml_key((k,))} = {format_toml_value(v)}\n" for k, v in values.items()
        )
        below = [index for index, each in enumerate(self._statements) if each.is_below(path)]
        if below:
            start = self._start_of_comments_above(self._line_start(self._statements[below[0]]))
            return self._with_inserted_lines(start, f"{header}\n{pairs}\n")
        end = self._end_of_related_sections(path)
        before = "" if not end or self._text[:end].endswith(("\n\n", "\r\n\r\n")) else "\n"
        after = "" if self._text[end:].lstrip(" \t")[:1] in ("", "\r", "\n") else "\n"
        return self._with_inserted_lines(end, f"{before}{header}\n{pairs}{after}")

    def _end_of_related_sections(self, path: KeyPath) -> int:
        """Return the end of the last section with the longest common path; else of the text."""
        for length in range(len(path) - 1, 0, -1):
            related = [n for n, each in enumerate(self._statements) if each.is_below(path[:length])]
            if related:
                return self._line_end_of(self._statements[self._last_of_section(related[-1])])
        return len(self._text)

    # -- positions ---------------------------------------------------------------------------

    def _with_inserted_lines(self, position: int, lines: str) -> str:
        before, after = self._text[:position], self._text[position:]
        gap = self._newline if before and not before.endswith("\n") else ""
        return "".join((before, gap, lines.replace("\n", self._newline), after))

    def _last_of_section(self, index: int) -> int:
        """Return the index of the last statement before the next header."""
        while index + 1 < len(self._statements) and self._statements[index + 1].value:
            index += 1
        return index

    def _line_start(self, each: _Statement) -> int:
        return self._text.rfind("\n", 0, each.start) + 1

    def _line_end_of(self, each: _Statement) -> int:
        return self._line_end_after(each.value[1] if each.value else each.start)

    def _line_end_after(self, position: int) -> int:
        end = self._text.find("\n", position)
        return len(self._text) if end < 0 else end + 1

    def _start_of_comments_above(self, position: int) -> int:
        """Return the start of the comment lines directly above this line."""
        while position:
            start = self._text.rfind("\n", 0, position - 1) + 1
            if not self._text[start:position].lstrip().startswith("#"):
                break
            position = start
        return position


def _apply(table: Any, path: KeyPath, value: Any) -> None:
    """Apply the change to the parsed table."""
    current = table
    for name, next_name in pairwise(path):
        if _get(current, name) is None:
            if value is None:
                return
            _set_child(current, name, [] if isinstance(next_name, int) else {})
        current = _get(current, name)
        if not isinstance(current, dict | list):
            raise ConfigError(
                f"{dotted_key(path)} cannot be set: {name} is not a section.",
                hint=_EDIT_BY_HAND_HINT,
            )
    if value is not None:
        _set_child(current, path[-1], value)
    elif _get(current, path[-1]) is not None:
        del cast("Any", current)[path[-1]]


def _get(container: Any, name: str | int) -> Any:
    if isinstance(container, list) and isinstance(name, int):
        elements = cast("list[Any]", container)[name : name + 1]
        return elements[0] if elements else None
    return cast("dict[str, Any]", container).get(str(name)) if isinstance(container, dict) else None


def _set_child(container: Any, name: str | int, value: Any) -> None:
    if isinstance(container, list) and isinstance(name, int):
        elements = cast("list[Any]", container)
        if name > len(elements):
            raise ConfigError(
                f"index {name} is out of range (the length is {len(elements)}).",
                hint="Indexes start at 0.",
            )
        elements[name : name + 1] = [value]
    elif isinstance(container, dict) and isinstance(name, str):
        container[name] = value
    else:
        raise ConfigError(f"{name} cannot be set there.", hint=_EDIT_BY_HAND_HINT)


def _parses_to(text: str, expected: Any) -> bool:
    try:
        return _normalize(tomllib.loads(text)) == _normalize(expected)
    except ValueError:
        return False


def _normalize(value: Any) -> Any:
    """Reduce a value for comparison: key order and empty sections do not matter."""
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        result = {
            key: value for key, below in table.items() if (value := _normalize(below)) is not None
        }
        return result or None
    if isinstance(value, list | tuple):
        return [_normalize(each) for each in cast("list[Any]", value)] or None
    return type(value), repr(value)
