"""Converts text from the environment or the command line to the type of a setting."""

from __future__ import annotations

import re
import tomllib
from typing import Any, Final, get_origin

from dodona.app.config import shape
from dodona.documents.toml_lines import KeyPath

WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}(\.[0-9]{1,18})?")


def parse_value(text: str, path: KeyPath) -> Any:
    """Convert the text to the type of the setting.

    Text that does not fit is returned unchanged, so that validation reports it.
    """
    kind = shape.unwrap_annotation(shape.at(path))
    section = shape.section_type(kind)
    if (kind is int or (section and section.shorthand_key)) and WHOLE_NUMBER.fullmatch(text):
        return int(text)
    if kind is float and _NUMBER.fullmatch(text):
        return float(text)
    if kind is bool:
        return {"true": True, "false": False}.get(text, text)
    if get_origin(kind) is tuple:
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def parse_argument(text: str, path: KeyPath) -> Any:
    """Convert a command line argument: like `parse_value`, but lists and sections can be TOML."""
    kind = shape.at(path)
    is_container = shape.section_type(kind) or shape.entry_type(kind) or shape.element_type(kind)
    if is_container and text.startswith(("[", "{")):
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except (ValueError, RecursionError):
            pass
    return parse_value(text, path)
