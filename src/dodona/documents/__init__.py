"""TOML files whose mistakes are told all at once: file, line, key, and what to write instead."""

from __future__ import annotations

from dodona.documents.document import MAX_BYTES, Document, parse, read
from dodona.documents.file_watcher import files, following
from dodona.documents.model_shape import Section, Shape, Texts, dotted, is_table, wrong
from dodona.documents.toml_lines import DEEPEST, KeyPath, locate
from dodona.documents.validation_errors import Mistakes

__all__ = [
    "DEEPEST",
    "MAX_BYTES",
    "Document",
    "KeyPath",
    "Mistakes",
    "Section",
    "Shape",
    "Texts",
    "dotted",
    "files",
    "following",
    "is_table",
    "locate",
    "parse",
    "read",
    "wrong",
]
