"""Sections that are right, and that this version of Dodona makes nothing of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from dodona.app.config import shape as schema
from dodona.app.config.config import Config
from dodona.documents import KeyPath

_NOT_YET: Final = ("plugins", "mcp")


def unused_sections(config: Config) -> Iterator[str]:
    """A sentence for each section that somebody wrote and nothing uses yet."""
    for name in _NOT_YET:
        entries = getattr(config.settings, name)
        is_list = schema.is_list_of_sections((name,))
        paths: Sequence[KeyPath] = [(name,)] if is_list else [(name, key) for key in entries]
        for path in paths if entries else ():
            title = f"[[{name}]]" if is_list else f"[{schema.dotted(path)}]"
            yield f"{config.places.nearest(path)}: nothing uses {title} yet."
