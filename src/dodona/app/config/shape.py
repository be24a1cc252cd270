"""The shape of the settings: which keys exist, and the type at each path."""

from __future__ import annotations

from typing import get_args

from dodona.app.config.settings import SecretSource, Settings, TextOrSource
from dodona.documents.model_shape import (
    ModelShape,
    dotted_key,
    element_type,
    entry_type,
    is_table,
    parse_dotted_key,
    section_type,
    unwrap_annotation,
)
from dodona.documents.toml_lines import KeyPath

__all__ = [
    "SHAPE",
    "at",
    "dotted_key",
    "element_type",
    "entry_type",
    "fields",
    "is_list_of_sections",
    "is_secret",
    "is_table",
    "parse_dotted_key",
    "section_type",
    "unwrap_annotation",
]

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
