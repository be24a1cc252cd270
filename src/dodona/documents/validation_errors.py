"""Turn pydantic validation errors into ConfigErrors with a location, a message and a hint."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
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
    "string_too_short": "a non-empty string",
    "string_unicode": "valid UTF-8 text",
}


def _nothing_is_secret(_: KeyPath) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class ConfigErrorBuilder:
    """Builds errors for a file or other input of this shape.

    `nearest_location` locates a key or the section closest to it; `text_line_location` locates a
    line inside a multi-line string. Values of keys that are `is_secret` are never shown.
    """

    shape: ModelShape
    nearest_location: Callable[[KeyPath], SourceLocation | None]
    text_line_location: Callable[[KeyPath, int], SourceLocation | None] | None = None
    is_secret: Callable[[KeyPath], bool] = _nothing_is_secret

    def from_validation_error(self, error: ValidationError) -> Iterator[ConfigError]:
        """Yield one ConfigError for each error that pydantic found."""
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
                    hint=f"Start each section with [[{dotted_key(path)}]], in double brackets.",
                    got=details["input"],
                )
            else:
                # If a key name is invalid, the path already shows it.
                yield self._from_details(path, details, got=None if is_name else details["input"])

    def invalid_value(
        self, path: KeyPath, message: str, *, hint: str = "", got: Any = None
    ) -> ConfigError:
        """Build an error for an invalid value: `agent.max_tokens must be > 0 (got -5).`.

        `got` is left out if it is None or a secret.
        """
        shown = "" if got is None or self.is_secret(path) else f" (got {_format_brief_value(got)})"
        return ConfigError(
            f"{dotted_key(path)} {message}{shown}.", where=self.nearest_location(path), hint=hint
        )

    def missing_key(
        self, path: KeyPath, reason: str = "", *, required_by: KeyPath = ()
    ) -> ConfigError:
        """Build an error for a missing key, located at `required_by` if another key needs it."""
        suffix = f": {reason}" if reason else ""
        field = self.shape.fields(path[:-1]).get(str(path[-1]))
        return ConfigError(
            f"{dotted_key(path)} is missing{suffix}.",
            where=self.nearest_location(required_by or path),
            hint=((field and field.description) or "").replace("`", ""),
        )

    def unknown_key(self, path: KeyPath, value: Any) -> ConfigError:
        """Build an error for an unknown key or section.

        The value is not shown: it may be a misplaced secret.
        """
        *above, name = path
        keys = sorted(self.shape.fields(tuple(above)))
        kind, key = _describe_key(path, value)
        suggestion = did_you_mean(str(name), keys)
        hint = suggestion or self._section_hint(name) or _format_known_keys(tuple(above), keys)
        return ConfigError(f"unknown {kind} {key}.", where=self.nearest_location(path), hint=hint)

    def _from_details(self, path: KeyPath, details: ErrorDetails, *, got: Any) -> ConfigError:
        message, hint = _describe_details(details)
        line: int = (
            details.get("ctx", {}).get("line", 0) if details["type"] == FIELD_ERROR_TYPE else 0
        )
        if not line:
            return self.invalid_value(path, message, hint=hint, got=got)
        # The string is long, so the error points at the line instead of showing the value.
        error = self.invalid_value(path, message, hint=hint)
        where = self.text_line_location(path, line) if self.text_line_location else error.where
        return ConfigError(error.message, where=where, hint=hint)

    def _is_section_array(self, path: KeyPath) -> bool:
        return section_type(element_type(self.shape.type_at(path))) is not None

    def _section_hint(self, name: str | int) -> str:
        """Return a hint that names the section with a key of this name."""
        shape = self.shape
        sections = [part for part in shape.fields(()) if name in shape.fields((part,))]
        return f"It belongs under [{sections[0]}]." if sections else ""


def _describe_key(path: KeyPath, value: Any) -> tuple[str, str]:
    """Return whether it is a key or a section, and how TOML writes it."""
    if is_table(value):
        return "section", f"[{dotted_key(path)}]"
    if isinstance(value, list) and value and all(map(is_table, cast("list[Any]", value))):
        return "section", f"[[{dotted_key(path)}]]"
    return "key", dotted_key(path)


def _format_known_keys(above: KeyPath, keys: Iterable[str]) -> str:
    prefix = f"Keys of [{dotted_key(above)}]" if above else "Sections"
    return f"{prefix}: {', '.join(keys)}."


def _describe_details(details: ErrorDetails) -> tuple[str, str]:
    """Describe a pydantic error code as a predicate ("must be a string") and a hint."""
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
    return f"is invalid: {details['msg']}", ""


def _format_brief_value(value: Any) -> str:
    """Format a short value as TOML writes it. Text that looks like a secret is redacted."""
    if is_table(value):
        return "a section"
    if isinstance(value, list):
        return "an array"
    plain = json.dumps(value, ensure_ascii=False, default=str)
    # An environment variable may contain bytes that are not UTF-8 and cannot be printed.
    text = Redactor().scrub(plain.encode(errors="backslashreplace").decode())
    return text if len(text) <= 60 else f"{text[:58]}…"
