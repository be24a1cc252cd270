"""A TOML file that knows the line of each key and validates against a pydantic model.

    class Rules(Section):
        rule: RuleSection

    read_document(path, label="a rule").validate(Rules)

Validation reports all errors at once, each with file, line, key and a hint.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from dodona.core.errors import ConfigError, SourceLocation
from dodona.documents.model_shape import ModelShape, Section
from dodona.documents.toml_lines import MAX_DEPTH, KeyPath, locate_keys
from dodona.documents.validation_errors import ConfigErrorBuilder

MAX_BYTES = 1_000_000
_ERROR_POSITION = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_SYNTAX_HINTS = {
    "Invalid value": "Put text in quotes.",
    "Cannot overwrite a value": "This key is set twice. Remove one.",
    "Cannot declare": "This section is declared twice. Merge the two.",
}

Kind = TypeVar("Kind", bound=Section)


@dataclass(frozen=True, slots=True)
class Document:
    """The content of a TOML file, and the line on which each key first appears."""

    file: Path
    text: str
    table: dict[str, Any]
    lines: Mapping[KeyPath, int]

    def nearest_location(self, path: KeyPath) -> SourceLocation:
        """Return the location of the key, or of the closest section above it."""
        lines = (self.lines.get(path[:length]) for length in range(len(path), 0, -1))
        return SourceLocation(str(self.file), next((line for line in lines if line), 0))

    def text_line_location(self, path: KeyPath, line: int) -> SourceLocation:
        """Return the location of a line inside the multi-line string at this key.

        A string in triple quotes usually starts on the line below its key.
        """
        where = self.nearest_location(path)
        if not where.line:
            return where
        source = self.text.splitlines()[where.line - 1].rstrip()
        # If the quotes occur twice on the line, the string starts and ends there.
        starts_below = source.endswith(('"""', "'''")) and source.count(source[-3:]) == 1
        return replace(where, line=where.line + line - (not starts_below))

    def error_builder(self, model: type[Section]) -> ConfigErrorBuilder:
        """Return a builder for errors that pydantic does not find."""
        return ConfigErrorBuilder(ModelShape(model), self.nearest_location, self.text_line_location)

    def validate(self, model: type[Kind]) -> Kind:
        """Parse the file into the model. Raises one ConfigError with all errors, by line."""
        try:
            return model.model_validate(self.table)
        except ValidationError as error:
            errors = sorted(self.error_builder(model).from_validation_error(error), key=_line_of)
            raise ConfigError.combine(errors) from None


def read_document(path: Path, *, label: str, max_bytes: int = MAX_BYTES) -> Document:
    """Read and parse the file. `label` names it in errors, as in "the config file". Blocking."""
    return parse_document(path, _read_text(path, label, max_bytes))


def parse_document(path: Path, text: str) -> Document:
    """Parse the text as the content of the file."""
    try:
        lines = locate_keys(text)
        too_deep = next((key_path for key_path in lines if len(key_path) > MAX_DEPTH), None)
        if too_deep:
            raise _depth_error(path, lines[too_deep])
        return Document(path, text, tomllib.loads(text), lines)
    except ValueError as error:  # TOMLDecodeError, or an integer with more than 4,300 digits
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
            hint="Check that it is a file and that you have permission to read it.",
        ) from error
    if len(raw) > max_bytes:
        raise ConfigError(
            f"{label} is larger than {max_bytes:,} bytes.",
            where=SourceLocation(str(path)),
            hint="Is it the right file?",
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            "the file is not valid UTF-8.",
            where=SourceLocation(str(path), raw.count(b"\n", 0, error.start) + 1),
            hint="Is it the right file?",
        ) from None


def _syntax_error(path: Path, text: str, message: str) -> ConfigError:
    """Build the error from tomllib's message, at its line and column."""
    position = _ERROR_POSITION.search(message)
    line, column = (int(position[1] or 0), int(position[2] or 0)) if position else (0, 0)
    if position and not line:
        line = text.count("\n") + 1  # "at end of document"
    reason = message[: position.start()] if position else message
    hint = next((hint for start, hint in _SYNTAX_HINTS.items() if reason.startswith(start)), "")
    return ConfigError(
        f"invalid TOML: {reason[:1].lower()}{reason[1:]}.",
        where=SourceLocation(str(path), line, column),
        hint=hint,
    )


def _depth_error(path: Path, line: int) -> ConfigError:
    return ConfigError(
        f"keys or values are nested more than {MAX_DEPTH} levels deep.",
        where=SourceLocation(str(path), line),
        hint="Is it the right file?",
    )
