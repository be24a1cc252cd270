"""The shape of the settings: which keys exist, the type at each path, and shorthands.

A shorthand is a plain number instead of a section: `daily = 500000` means `daily.tokens = 500000`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final, get_args, get_origin

from dodona.app.config.settings import SecretSource, Settings, TextOrSource
from dodona.documents import Document, KeyPath, is_table
from dodona.documents.model_shape import (
    ModelShape,
    element_type,
    entry_type,
    section_type,
    unwrap_annotation,
)

SHAPE = ModelShape(Settings)
at = SHAPE.type_at
fields = SHAPE.fields


def is_list_of_sections(path: KeyPath) -> bool:
    """Whether the setting is a list of sections, written as `[[path]]`."""
    return section_type(element_type(at(path))) is not None


def is_secret(path: KeyPath) -> bool:
    """Whether the setting refers to a secret, or may do so."""
    annotation = at(path)
    kinds = (annotation, *get_args(annotation))
    return SecretSource in kinds or TextOrSource in kinds


# -- shorthands --------------------------------------------------------------------------------


def expand_shorthand(document: Document | None) -> tuple[dict[str, Any], Mapping[KeyPath, int]]:
    """Return the file's table and lines with all shorthands expanded; empty without a file."""
    if document is None:
        return {}, {}
    table, lines = document.table, document.lines
    paths = [path for path in _SHORTHAND_PATHS if type(value_at(table, path)) is int]
    for path in paths:
        lines = {**lines, shorthand_key(path): lines[path]}
        parent = value_at(table, path[:-1])
        parent[path[-1]] = {shorthand_key(path)[-1]: parent[path[-1]]}
    return table, lines


def shorthand_key(path: KeyPath) -> KeyPath:
    """Return the key that a plain number at this path sets; the path itself if not a shorthand."""
    section = section_type(at(path))
    return (*path, section.shorthand_key) if section and section.shorthand_key else path


def value_at(table: Any, path: KeyPath) -> Any:
    """Return the value at the path, or None if there is none."""
    for name in path:
        table = table.get(str(name)) if is_table(table) else None
    return table


_SHORTHAND_PATHS: tuple[KeyPath, ...] = tuple(
    path
    for section in fields(())
    for name in fields((section,))
    if shorthand_key(path := (section, name)) != path
)


# -- text from the environment and the command line --------------------------------------------

WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}(\.[0-9]{1,18})?")


def parse_value(text: str, path: KeyPath) -> Any:
    """Convert the text to the type of the setting.

    Text that does not fit is returned unchanged, so that validation reports it.
    """
    kind = unwrap_annotation(at(path))
    section = section_type(kind)
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
    kind = at(path)
    is_container = section_type(kind) or entry_type(kind) or element_type(kind)
    if is_container and text.startswith(("[", "{")):
        try:
            return tomllib.loads(f"value = {text}")["value"]
        except (ValueError, RecursionError):
            pass
    return parse_value(text, path)
