"""What a backup holds: its files with their checksums, and how many rows each table has."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self, TypeAlias

import msgspec

from dodona.core.errors import NotFound, StoreError

MANIFEST_FILE: Final = "manifest.json"
FORMAT_VERSION: Final = 1
_MAX_MANIFEST_BYTES: Final = 8 << 20  # bytes of a manifest
_BLOCK_BYTES: Final = 1 << 20

# Told how much is done, of how much.
OnProgress: TypeAlias = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class FileEntry:
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """`tables` has the rows of each; `columns` and `sequences` are there to load PostgreSQL."""

    format: int
    database: str  # sqlite or postgresql
    schema: str
    dodona: str
    made_at: str
    files: dict[str, FileEntry]
    tables: dict[str, int]
    columns: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    sequences: dict[str, tuple[int, bool]] = field(default_factory=dict[str, tuple[int, bool]])

    @property
    def rows(self) -> int:
        return sum(self.tables.values())

    @property
    def bytes(self) -> int:
        return sum(entry.bytes for entry in self.files.values())

    @classmethod
    def read(cls, folder: Path) -> Self:
        try:
            with (folder / MANIFEST_FILE).open("rb") as file:
                raw = file.read(_MAX_MANIFEST_BYTES)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFound(
                f"there is no backup at {folder}.", hint="Name the folder that it is in."
            ) from error
        except OSError as error:
            raise StoreError(f"the backup {folder} cannot be read: {error.strerror}.") from error
        try:
            found = msgspec.json.decode(raw, type=cls)
        except (msgspec.DecodeError, RecursionError) as error:
            raise StoreError(
                f"the backup {folder} is damaged: its {MANIFEST_FILE} does not read.",
                hint="Use another backup.",
            ) from error
        if found.format != FORMAT_VERSION or any(
            Path(name).is_absolute() or ".." in Path(name).parts for name in found.files
        ):
            raise StoreError(
                f"the backup {folder} was made by another version of Dodona.",
                hint=f"Use Dodona {found.dodona[:40]}, or a newer one.",
            )
        return found

    def write(self, folder: Path) -> None:
        write_file(folder / MANIFEST_FILE, msgspec.json.format(msgspec.json.encode(self), indent=2))


def write_file(path: Path, content: bytes) -> None:
    """A file for its owner alone; it is on the disk when this returns."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def entry_of(path: Path, on_progress: OnProgress | None = None) -> FileEntry:
    digest, size, total = hashlib.sha256(), 0, path.stat().st_size
    for block in read_blocks(path):
        digest.update(block)
        size += len(block)
        if on_progress is not None:
            on_progress(size, total)
    return FileEntry(digest.hexdigest(), size)


def read_blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            yield block


def fsync_path(path: Path) -> None:
    """Have a file, or what a folder lists, on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
