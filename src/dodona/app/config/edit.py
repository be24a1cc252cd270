"""Changes the config file in place: comments, order and what nobody spoke of stay as they are.

    edit(path, {("agent", "model"): "qwen3", ("budgets", "daily", "usd"): None})

None takes a key out. What comes of it is checked first: if anything is wrong with it, nothing is
written, and the old file stays until the new one is on the disk.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dodona.app.config import shape as schema
from dodona.app.config.atomic_files import PendingFile, locked, write
from dodona.app.config.config import MAX_BYTES, checked, is_there
from dodona.app.config.environment import silenced
from dodona.app.config.shorthand import found_at, key_of
from dodona.core.errors import ConfigError, Location
from dodona.documents import KeyPath, parse, read
from dodona.documents.toml_editing import edited

_BOM: Final = b"\xef\xbb\xbf"


def edit(
    path: Path,
    changes: Mapping[KeyPath, Any],
    *,
    environment: Mapping[str, str] | None = None,
    is_found: bool = False,
) -> None:
    """Make these changes to the file; it is created if there is none. It blocks.

    `is_found`: the file lay in the current folder, and nobody named it.
    """
    with locked(path.parent):
        file = draft(
            path, changes, os.environ if environment is None else environment, is_found=is_found
        )
        write([file] if file else [])


def draft(
    path: Path,
    changes: Mapping[KeyPath, Any],
    environment: Mapping[str, str],
    *,
    is_found: bool = False,
) -> PendingFile | None:
    """The file after these changes; None when it says so already. ConfigError says why not."""
    before = ""
    mark = b""
    if is_there(path):
        document = read(path, what="the config file", max_bytes=MAX_BYTES)
        before = document.text
        with path.open("rb") as opened:
            mark = opened.read(len(_BOM))
        changes = _spelled(document.table, changes)
    after = edited(before, changes)
    document = parse(path, after)
    # What a variable hides must be right by itself: the next command may not have the variable.
    checked(document, silenced(environment, document.table, changes), is_found=is_found)
    if after == before and is_there(path):
        return None
    try:
        data = after.encode()
    except UnicodeEncodeError as error:
        raise ConfigError("the value is no text in UTF-8.", where=Location(str(path))) from error
    return PendingFile(path, (_BOM if mark == _BOM else b"") + data)


def _spelled(table: Mapping[str, Any], changes: Mapping[KeyPath, Any]) -> dict[KeyPath, Any]:
    """The changes as they fit a file that has a plain number for a section, or a section for it."""
    fitting: dict[KeyPath, Any] = {}
    for path, value in changes.items():
        above = path[:-1]
        number = found_at(table, above)
        if key_of(above) != above and type(number) is int:
            fitting.setdefault(above, {key_of(above)[-1]: number})
        is_section = schema.is_table(found_at(table, path))
        fitting[key_of(path) if type(value) is int and is_section else path] = value
    return fitting
