"""Edits the config file in place; comments, order and all other keys stay as they are.

    edit_config(path, {("agent", "model"): "qwen3", ("budgets", "daily", "usd"): None})

None removes a key. The result is validated first: an invalid result is not written. The old file
is replaced only when the new one is on disk. A trusted file stays trusted, because the change is
the user's own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dodona.app.config.atomic_files import PendingFile, lock_folder, write_files
from dodona.app.config.config import (
    MAX_CONFIG_BYTES,
    file_exists,
    home_folder,
    parse_config,
)
from dodona.app.config.environment import without_overrides
from dodona.app.config.shape import shorthand_key, value_at
from dodona.app.config.trust import requests_of_file
from dodona.app.config.trusted_files import TrustedFiles
from dodona.core.errors import ConfigError, SourceLocation
from dodona.documents import Document, KeyPath, is_table, parse_document, read_document
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
    environment = os.environ if environment is None else environment
    with lock_folder(path.parent):
        draft = draft_config(path, changes, environment, is_implicit=is_implicit)
        write_files(draft.files)
    draft.trust()


@dataclass(frozen=True, slots=True)
class ConfigDraft:
    """The edited file. `files` is empty if nothing changes."""

    document: Document
    files: Sequence[PendingFile] = ()
    trusted_files: TrustedFiles | None = None  # if the user's own change needs trust

    def trust(self) -> None:
        """Trust the new content, once it is written: the user trusted the rest before."""
        if self.trusted_files is not None:
            self.trusted_files.add(self.document)


def draft_config(
    path: Path,
    changes: Mapping[KeyPath, Any],
    environment: Mapping[str, str],
    *,
    is_implicit: bool = False,
) -> ConfigDraft:
    """Return the edited file. Raise ConfigError if it is invalid."""
    before = ""
    prefix = b""
    trusted_files = TrustedFiles(home_folder(environment)) if is_implicit else None
    is_untrusted = False
    if file_exists(path):
        document = read_document(path, label="the config file", max_bytes=MAX_CONFIG_BYTES)
        before = document.text
        if trusted_files is not None and not trusted_files.trusts(document):
            is_untrusted = bool(requests_of_file(document))
        with path.open("rb") as opened:
            prefix = opened.read(len(_BOM))
        changes = _fit_shorthand(document.table, changes)
    after = edit_toml(before, changes)
    document = parse_document(path, after)
    # Validate values that a variable overrides too: the next command may run without it.
    variables = without_overrides(environment, document.table, changes)
    needs_trust = not is_untrusted and bool(requests_of_file(document))
    parse_config(document, variables, is_untrusted=is_untrusted)
    if after == before and file_exists(path):
        return ConfigDraft(document)
    try:
        data = after.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            "the value is not valid UTF-8 text.", where=SourceLocation(str(path))
        ) from error
    file = PendingFile(path, (_BOM if prefix == _BOM else b"") + data)
    return ConfigDraft(document, [file], trusted_files if needs_trust else None)


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
