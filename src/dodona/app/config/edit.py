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
from dodona.app.config.atomic_files import PendingFile, lock_folder, write_files
from dodona.app.config.config import MAX_CONFIG_BYTES, file_exists, parse_config
from dodona.app.config.environment import without_overrides
from dodona.app.config.shorthand import shorthand_key, value_at
from dodona.core.errors import ConfigError, SourceLocation
from dodona.documents import KeyPath, parse_document, read_document
from dodona.documents.toml_editing import edit_toml

_BOM: Final = b"\xef\xbb\xbf"


def edit_config(
    path: Path,
    changes: Mapping[KeyPath, Any],
    *,
    environment: Mapping[str, str] | None = None,
    is_implicit: bool = False,
) -> None:
    """Make these changes to the file; it is created if there is none. It blocks.

    `is_found`: the file lay in the current folder, and nobody named it.
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
    """The file after these changes; None when it says so already. ConfigError says why not."""
    before = ""
    mark = b""
    if file_exists(path):
        document = read_document(path, label="the config file", max_bytes=MAX_CONFIG_BYTES)
        before = document.text
        with path.open("rb") as opened:
            mark = opened.read(len(_BOM))
        changes = _fit_shorthand(document.table, changes)
    after = edit_toml(before, changes)
    document = parse_document(path, after)
    # What a variable hides must be right by itself: the next command may not have the variable.
    parse_config(
        document, without_overrides(environment, document.table, changes), is_implicit=is_implicit
    )
    if after == before and file_exists(path):
        return None
    try:
        data = after.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            "the value is no text in UTF-8.", where=SourceLocation(str(path))
        ) from error
    return PendingFile(path, (_BOM if mark == _BOM else b"") + data)


def _fit_shorthand(table: Mapping[str, Any], changes: Mapping[KeyPath, Any]) -> dict[KeyPath, Any]:
    """The changes as they fit a file that has a plain number for a section, or a section for it."""
    fitting: dict[KeyPath, Any] = {}
    for path, value in changes.items():
        above = path[:-1]
        number = value_at(table, above)
        if shorthand_key(above) != above and type(number) is int:
            fitting.setdefault(above, {shorthand_key(above)[-1]: number})
        is_section = schema.is_table(value_at(table, path))
        fitting[shorthand_key(path) if type(value) is int and is_section else path] = value
    return fitting
