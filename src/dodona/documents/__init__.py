"""Read, validate and edit TOML files. Errors come with file, line, key and a hint."""

from __future__ import annotations

from dodona.documents.document import MAX_BYTES, Document, parse_document, read_document
from dodona.documents.model_shape import (
    ModelShape,
    NonEmptyStrings,
    Section,
    dotted_key,
    field_error,
    is_table,
)
from dodona.documents.toml_lines import MAX_DEPTH, KeyPath, locate_keys
from dodona.documents.validation_errors import ConfigErrorBuilder

__all__ = [
    "MAX_BYTES",
    "MAX_DEPTH",
    "ConfigErrorBuilder",
    "Document",
    "KeyPath",
    "ModelShape",
    "NonEmptyStrings",
    "Section",
    "dotted_key",
    "field_error",
    "is_table",
    "locate_keys",
    "parse_document",
    "read_document",
]
