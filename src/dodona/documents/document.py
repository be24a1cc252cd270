"""A TOML file that knows where its keys stand, checked against a model of pydantic.

    class Rules(Section):
        rule: RuleSection

    read(path, what="a rule").checked(Rules)

Whatever is wrong is told at once: file, line, key, and what to write instead.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from dodona.core.errors import ConfigError, SourceLocation
from dodona.documents import validation_errors as mistakes
from dodona.documents.model_shape import ModelShape, Section
from dodona.documents.toml_lines import MAX_DEPTH, KeyPath, locate_keys
from dodona.documents.validation_errors import ConfigErrorBuilder

MAX_BYTES = 1_000_000
_ERROR_POSITION = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_SYNTAX_HINTS = {
    "Invalid value": "Text stands in quotes.",
    "Cannot overwrite a value": "This key is set twice: keep one.",
    "Cannot declare": "This section is there twice: make one of them.",
}

Kind = TypeVar("Kind", bound=Section)


@dataclass(frozen=True, slots=True)
class Document:
    """What a file says, and the line on which each key first appears."""

    file: Path
    text: str
    table: dict[str, Any]
    lines: Mapping[KeyPath, int]

    def nearest_location(self, path: KeyPath) -> SourceLocation:
        """The place of the key, or of the closest section above it: where a mistake is told."""
        found = (self.lines.get(path[:length]) for length in range(len(path), 0, -1))
        return SourceLocation(str(self.file), next((line for line in found if line), 0))

    def text_line_location(self, path: KeyPath, line: int) -> SourceLocation | None:
        """The place of a line of the text at this key."""
        where = self.nearest_location(path)
        key_line = self.text.splitlines()[where.line - 1] if where.line else ""
        return mistakes.text_line_location(where, line, key_line)

    def error_builder(self, model: type[Section]) -> ConfigErrorBuilder:
        """Tells what else is wrong with it."""
        return ConfigErrorBuilder(ModelShape(model), self.nearest_location, self.text_line_location)

    def validate(self, model: type[Kind]) -> Kind:
        """The file as this model; raises every mistake that there is, line by line."""
        try:
            return model.model_validate(self.table)
        except ValidationError as error:
            found = sorted(self.error_builder(model).from_validation_error(error), key=_line_of)
            raise ConfigError.combine(found) from None


def read_document(path: Path, *, label: str, max_bytes: int = MAX_BYTES) -> Document:
    """The file as it is now; `what` is how it is called: "the config file". It blocks."""
    return parse_document(path, _read_text(path, label, max_bytes))


def parse_document(path: Path, text: str) -> Document:
    """The text as if the file held it."""
    try:
        lines = locate_keys(text)
        deep = next((place for place in lines if len(place) > MAX_DEPTH), None)
        if deep:
            raise _depth_error(path, lines[deep])
        return Document(path, text, tomllib.loads(text), lines)
    except ValueError as error:  # TOMLDecodeError is one, and a number of 5,000 digits raises it
        raise _syntax_error(path, text, str(error)) from None
    except RecursionError:
        raise _depth_error(path, 0) from None


def _line_of(error: ConfigError) -> int:
    return error.where.line if error.where else 0


def _read_text(path: Path, label: str, max_bytes: int) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(max_bytes + 1)
    except OSError as error:
        raise ConfigError(
            f"{label} cannot be read: {error.strerror}.",
            where=SourceLocation(str(path)),
            hint="It must be a file that you may read.",
        ) from error
    if len(raw) > max_bytes:
        raise ConfigError(
            f"{label} has more than {max_bytes:,} bytes.",
            where=SourceLocation(str(path)),
            hint="Is it the right file?",
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            "this is no text in UTF-8.",
            where=SourceLocation(str(path), raw.count(b"\n", 0, error.start) + 1),
            hint="Is it the right file?",
        ) from None


def _syntax_error(path: Path, text: str, message: str) -> ConfigError:
    """What tomllib says, at its line and column."""
    found = _ERROR_POSITION.search(message)
    line, column = (int(found[1] or 0), int(found[2] or 0)) if found else (0, 0)
    if found and not line:
        line = text.count("\n") + 1  # "at end of document"
    words = message[: found.start()] if found else message
    hint = next((hint for start, hint in _SYNTAX_HINTS.items() if words.startswith(start)), "")
    return ConfigError(
        f"this is no TOML: {words[:1].lower()}{words[1:]}.",
        where=SourceLocation(str(path), line, column),
        hint=hint,
    )


def _depth_error(path: Path, line: int) -> ConfigError:
    return ConfigError(
        f"this nests more than {MAX_DEPTH} levels deep.",
        where=SourceLocation(str(path), line),
        hint="Is it the right file?",
    )
