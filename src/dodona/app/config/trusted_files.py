"""`trusted.json` in the Dodona folder: the config files that the user trusts, by path and hash.

A file that changes is not trusted any more.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec

from dodona.app.config.atomic_files import PendingFile, lock_folder, write_files
from dodona.core.errors import ConfigError, SourceLocation
from dodona.documents import Document

TRUSTED_FILE_NAME: Final = "trusted.json"


class TrustedFile(msgspec.Struct, frozen=True):
    """The hash of the content that the user trusts, and when they said so."""

    sha256: str
    trusted_at: float


class TrustedFiles:
    """The files that the user trusts. Every method blocks."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.path = home / TRUSTED_FILE_NAME

    def trusts(self, document: Document) -> bool:
        """Whether the user trusts the file with exactly this content."""
        entry = self.list().get(location_of(document.file))
        return entry is not None and entry.sha256 == content_hash(document)

    def add(self, document: Document) -> None:
        """Trust the file with this content."""
        entry = TrustedFile(content_hash(document), time.time())
        with lock_folder(self._home):
            self._write({**self.list(), location_of(document.file): entry})

    def remove(self, file: Path) -> bool:
        """Trust the file no longer; return False if it was not trusted."""
        with lock_folder(self._home):
            entries = self.list()
            if entries.pop(location_of(file), None) is None:
                return False
            self._write(entries)
        return True

    def list(self) -> dict[str, TrustedFile]:
        """Return the trusted files by their path."""
        try:
            with self.path.open("rb") as opened:
                self._check_owner(os.fstat(opened.fileno()))
                return msgspec.convert(json.load(opened), dict[str, TrustedFile])
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError, RecursionError, msgspec.ValidationError) as error:
            raise ConfigError(
                "the list of trusted files cannot be read.",
                where=SourceLocation(str(self.path)),
                hint="Remove it, and trust the files again with: dodona trust",
            ) from error

    def _check_owner(self, status: os.stat_result) -> None:
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o022:
            raise ConfigError(
                "other users can change the list of trusted files.",
                where=SourceLocation(str(self.path)),
                hint=f"Check it, then restrict it: chmod 600 {self.path}",
            )

    def _write(self, entries: Mapping[str, TrustedFile]) -> None:
        document: dict[str, Any] = msgspec.to_builtins(entries)
        # JSON in ASCII: a path may contain bytes that are not UTF-8.
        data = json.dumps(document, indent=1, sort_keys=True).encode()
        write_files([PendingFile(self.path, data + b"\n", mode=0o600)])


def location_of(file: Path) -> str:
    """Return the absolute path without links above the file.

    The file itself may be a link: its relative paths start in the folder that it is found in.
    """
    return str(file.parent.resolve() / file.name)


def content_hash(document: Document) -> str:
    """Return the hash of the file's text."""
    return sha256(document.text.encode(errors="surrogatepass")).hexdigest()
