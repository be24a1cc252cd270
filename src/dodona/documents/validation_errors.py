"""Mistakes in files, in words: what is wrong, what was found there, what to write instead."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from dodona.core.errors import ConfigError, SourceLocation, did_you_mean
from dodona.documents.model_shape import (
    FIELD_ERROR_TYPE,
    ModelShape,
    dotted_key,
    element_type,
    is_table,
    section_type,
)
from dodona.documents.toml_lines import KeyPath
from dodona.net.redactor import Redactor

_EXPECTED: Mapping[str, str] = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "a string",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "model_type": "a section",
    "dict_type": "a section",
    "string_too_short": "more than an empty string",
    "string_unicode": "text in UTF-8",
}


def _nothing_is_secret(_: KeyPath) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class ConfigErrorBuilder:
    """Tells mistakes in what has this shape.

    `near` knows the place of a key, or of what is closest to it; `inside` the place of a line of
    a text that stands there. What `is_secret` is never shown.
    """

    shape: ModelShape
    nearest_location: Callable[[KeyPath], SourceLocation | None]
    text_line_location: Callable[[KeyPath, int], SourceLocation | None] | None = None
    is_secret: Callable[[KeyPath], bool] = _nothing_is_secret

    def from_validation_error(self, error: ValidationError) -> Iterator[ConfigError]:
        """Each mistake that pydantic found."""
        for details in error.errors(include_url=False):
            is_name = details["loc"][-1:] == ("[key]",)
            path = details["loc"][:-1] if is_name else details["loc"]
            if details["type"] == "extra_forbidden":
                yield self.unknown_key(path, details["input"])
            elif details["type"] == "missing":
                yield self.missing_key(path)
            elif details["type"] == "tuple_type" and self._is_section_array(path):
                yield self.invalid_value(
                    path,
                    "must be a list of sections",
                    hint=f"Write [[{dotted_key(path)}]], with two brackets, above each.",
                    got=details["input"],
                )
            else:
                # Of a name that is wrong, the path has told already what was found.
                yield self._from_details(path, details, got=None if is_name else details["input"])

    def invalid_value(
        self, path: KeyPath, message: str, *, hint: str = "", got: Any = None
    ) -> ConfigError:
        """`agent.max_tokens must be > 0 (got -5).` A secret is never shown, nor a missing value."""
        shown = "" if got is None or self.is_secret(path) else f" (got {_format_brief_value(got)})"
        return ConfigError(
            f"{dotted_key(path)} {message}{shown}.", where=self.nearest_location(path), hint=hint
        )

    def missing_key(
        self, path: KeyPath, reason: str = "", *, required_by: KeyPath = ()
    ) -> ConfigError:
        """A key that must be there; it is told where `by` is, if another key asks for it."""
        because = f": {reason}" if reason else ""
        field = self.shape.fields(path[:-1]).get(str(path[-1]))
        return ConfigError(
            f"{dotted_key(path)} is missing{because}.",
            where=self.nearest_location(required_by or path),
            hint=((field and field.description) or "").replace("`", ""),
        )

    def unknown_key(self, path: KeyPath, value: Any) -> ConfigError:
        """A key or section that there is not. Its value may be a misplaced secret: not told."""
        *above, name = path
        known = sorted(self.shape.fields(tuple(above)))
        kind, word = _describe_key(path, value)
        near = did_you_mean(str(name), known)
        hint = near or self._section_hint(name) or _format_known_keys(tuple(above), known)
        return ConfigError(f"unknown {kind} {word}.", where=self.nearest_location(path), hint=hint)

    def _from_details(self, path: KeyPath, details: ErrorDetails, *, got: Any) -> ConfigError:
        message, hint = _describe_details(details)
        line: int = (
            details.get("ctx", {}).get("line", 0) if details["type"] == FIELD_ERROR_TYPE else 0
        )
        if not line:
            return self.invalid_value(path, message, hint=hint, got=got)
        # The text itself is long, and its line is told: that is enough to find it.
        told = self.invalid_value(path, message, hint=hint)
        where = self.text_line_location(path, line) if self.text_line_location else told.where
        return ConfigError(told.message, where=where, hint=hint)

    def _is_section_array(self, path: KeyPath) -> bool:
        return section_type(element_type(self.shape.type_at(path))) is not None

    def _section_hint(self, name: str | int) -> str:
        """Which section has a key of this name."""
        shape = self.shape
        homes = [part for part in shape.fields(()) if name in shape.fields((part,))]
        return f"It belongs under [{homes[0]}]." if homes else ""


def text_line_location(
    where: SourceLocation | None, line: int, key_line: str
) -> SourceLocation | None:
    """The place of a line of a text whose key is at `where`; `key_line` is all that stands there.

    A text between three quotes usually begins on the line below.
    """
    if where is None or not where.line:
        return where
    said = key_line.rstrip()
    # Twice on one line, the quotes close there what they opened.
    begins_below = said.endswith(('"""', "'''")) and said.count(said[-3:]) == 1
    return replace(where, line=where.line + line - (not begins_below))


def _describe_key(path: KeyPath, value: Any) -> tuple[str, str]:
    """What it is that stands there, and how it is written."""
    if is_table(value):
        return "section", f"[{dotted_key(path)}]"
    if isinstance(value, list) and value and all(map(is_table, cast("list[Any]", value))):
        return "section", f"[[{dotted_key(path)}]]"
    return "key", dotted_key(path)


def _format_known_keys(above: KeyPath, known: Iterable[str]) -> str:
    where = f"[{dotted_key(above)}] takes" if above else "Sections are"
    return f"{where} {', '.join(known)}."


def _describe_details(details: ErrorDetails) -> tuple[str, str]:
    """What pydantic calls by a code, as the rest of a sentence and a hint."""
    kind, values = details["type"], details.get("ctx", {})
    if kind == FIELD_ERROR_TYPE:
        return values["message"], values["hint"]
    if kind in _EXPECTED:
        return f"must be {_EXPECTED[kind]}", ""
    if kind == "literal_error":
        choices: list[str] = re.findall(r"'([^']+)'", values["expected"])
        return f"must be one of {', '.join(choices)}", did_you_mean(str(details["input"]), choices)
    limits = {"greater_than": ">", "greater_than_equal": ">=", "less_than_equal": "<="}
    if kind in limits:
        (limit,) = values.values()
        return f"must be {limits[kind]} {limit:g}", ""
    return f"is wrong: {details['msg']}", ""


def _format_brief_value(value: Any) -> str:
    """A value as TOML writes it, if it is short; what looks like a key is not shown."""
    if is_table(value):
        return "a section"
    if isinstance(value, list):
        return "an array"
    plain = json.dumps(value, ensure_ascii=False, default=str)
    # A variable may hold bytes that are no text, and those cannot be printed.
    text = Redactor().scrub(plain.encode(errors="backslashreplace").decode())
    return text if len(text) <= 60 else f"{text[:58]}…"
