"""Edits the config file in place; comments, order and all other keys stay as they are.

    edit_config(path, {("agent", "model"): "qwen3", ("budgets", "daily", "usd"): None})

None removes a key. The result is validated first: an invalid result is not written. The old file
is replaced only when the new one is on disk.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dodona.app.config.atomic_files import PendingFile, lock_folder, write_files
from dodona.app.config.config import MAX_CONFIG_BYTES, file_exists, parse_config
from dodona.app.config.environment import without_overrides
from dodona.app.config.shape import shorthand_key, value_at
from dodona.core.errors import ConfigError, SourceLocation
from dodona.documents import KeyPath, is_table, parse_document, read_document
from dodona.documents.toml_editing import edit_toml

_BOM: Final = b"\xef\xbb\xbf"


def edit_config(
    path: Path,
    changes: Mapping[KeyPath, Any],
    *,
    environment: Mapping[str, str] | None = None,
    is_implicit: bool = False,
) -> None:
    """Apply the changes to the file, or create it. Blocks.

    `is_implicit`: the file was picked up from the current folder, without the user naming it.
    """
    with lock_folder(path.parent):
        file = draft_config(
            path,
            changes,
            os.environ if environment is None else environment,
            is_implicit=is_implicit,
        )
        write_files([file] if file else [])


def draft_config(
    path: Path,
    changes: Mapping[KeyPath, Any],
    environment: Mapping[str, str],
    *,
    is_implicit: bool = False,
) -> PendingFile | None:
    """Return the edited file, or None if nothing changes. Raise ConfigError if it is invalid."""
    before = ""
    prefix = b""
    if file_exists(path):
        document = read_document(path, label="the config file", max_bytes=MAX_CONFIG_BYTES)
        before = document.text
        with path.open("rb") as opened:
            prefix = opened.read(len(_BOM))
        changes = _fit_shorthand(document.table, changes)
    after = edit_toml(before, changes)
    document = parse_document(path, after)
    # Validate values that a variable overrides too: the next command may run without it.
    parse_config(
        document, without_overrides(environment, document.table, changes), is_implicit=is_implicit
    )
    if after == before and file_exists(path):
        return None
    try:
        data = after.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            "the value is not valid UTF-8 text.", where=SourceLocation(str(path))
        ) from error
    return PendingFile(path, (_BOM if prefix == _BOM else b"") + data)


def _fit_shorthand(table: Mapping[str, Any], changes: Mapping[KeyPath, Any]) -> dict[KeyPath, Any]:
    """Adapt the changes to a file that uses a plain number for a section, or the reverse."""
    fitting: dict[KeyPath, Any] = {}
    for path, value in changes.items():
        above = path[:-1]
        number = value_at(table, above)
        if shorthand_key(above) != above and type(number) is int:
            fitting.setdefault(above, {shorthand_key(above)[-1]: number})
        is_section = is_table(value_at(table, path))
        fitting[shorthand_key(path) if type(value) is int and is_section else path] = value
    return fitting
