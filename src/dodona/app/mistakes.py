"""Mistakes in settings: those of the file's, told where they were made, in it or in a variable."""

from __future__ import annotations

from dodona.app.places import Places
from dodona.app.schema import SHAPE, is_secret
from dodona.core.errors import ConfigError
from dodona.documents.mistakes import Mistakes
from dodona.documents.toml_lines import KeyPath


def mistakes(places: Places) -> Mistakes:
    """Tells what is wrong with settings that were made in these places."""
    return Mistakes(SHAPE, places.near, is_secret=is_secret)


def idle(path: KeyPath, whom: str, places: Places) -> ConfigError:
    """A setting that would do nothing: whoever wrote it expects that it does."""
    return mistakes(places).wrong(path, f"has no effect: {whom} takes none", hint="Remove it.")
