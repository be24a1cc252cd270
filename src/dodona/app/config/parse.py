"""Text from the environment or the command line, as the type that its setting has."""

from __future__ import annotations

import re
import tomllib
from typing import Any, Final, get_origin

from dodona.app.config import shape as schema
from dodona.documents.toml_lines import KeyPath

WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}(\.[0-9]{1,18})?")


def parse_value(text: str, path: KeyPath) -> Any:
    """The text as what is wanted there; itself where it is not that, for the check to tell."""
    kind = schema.unwrap_annotation(schema.at(path))
    section = schema.section_type(kind)
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
    """The same, of what somebody typed: a list or a section may be written as in TOML, too."""
    kind = schema.at(path)
    holds_more = schema.section_type(kind) or schema.entry_type(kind) or schema.element_type(kind)
    if holds_more and text.startswith(("[", "{")):
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except (ValueError, RecursionError):
            pass
    return parse_value(text, path)
