"""The settings as a tree of names: what is known at a path, and of which type."""

from __future__ import annotations

from typing import get_args

from dodona.app.settings import SecretSource, Settings
from dodona.documents.shape import Shape, bare, dotted, entries, is_table, section
from dodona.documents.toml_lines import KeyPath

__all__ = ["SHAPE", "at", "bare", "dotted", "entries", "fields", "is_secret", "is_table", "section"]

SHAPE = Shape(Settings)
at = SHAPE.at
fields = SHAPE.fields


def is_secret(path: KeyPath) -> bool:
    """Does the setting at this path say where a secret is?"""
    found = at(path)
    return SecretSource in (found, *get_args(found))
