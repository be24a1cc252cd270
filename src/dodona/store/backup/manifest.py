"""The manifest of a backup: its files with checksums, and the row count of each table."""

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
_MAX_MANIFEST_BYTES: Final = 8 << 20
_BLOCK_BYTES: Final = 1 << 20

# Receives the amount done, and the total.
OnProgress: TypeAlias = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class FileEntry:
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """`tables` has row counts; `columns` and `sequences` are needed to load PostgreSQL."""

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
        """Read and validate the manifest of a backup."""
        try:
            with (folder / MANIFEST_FILE).open("rb") as file:
                raw = file.read(_MAX_MANIFEST_BYTES)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFound(
                f"there is no backup at {folder}.", hint="Specify the folder of the backup."
            ) from error
        except OSError as error:
            raise StoreError(f"the backup {folder} cannot be read: {error.strerror}.") from error
        try:
            manifest = msgspec.json.decode(raw, type=cls)
        except (msgspec.DecodeError, RecursionError) as error:
            raise StoreError(
                f"the backup {folder} is damaged: its {MANIFEST_FILE} is invalid.",
                hint="Use another backup.",
            ) from error
        if manifest.format != FORMAT_VERSION or any(
            Path(name).is_absolute() or ".." in Path(name).parts for name in manifest.files
        ):
            raise StoreError(
                f"the backup {folder} was made by another version of Dodona.",
                hint=f"Use Dodona {manifest.dodona[:40]}, or a newer one.",
            )
        return manifest

    def write(self, folder: Path) -> None:
        """Write the manifest into the folder of a backup."""
        write_file(folder / MANIFEST_FILE, msgspec.json.format(msgspec.json.encode(self), indent=2))


def write_file(path: Path, content: bytes) -> None:
    """Write a new file, readable by its owner only; it is durable when this returns."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def entry_of(path: Path, on_progress: OnProgress | None = None) -> FileEntry:
    """Return the checksum and the size of a file."""
    digest, size, total = hashlib.sha256(), 0, path.stat().st_size
    for block in read_blocks(path):
        digest.update(block)
        size += len(block)
        if on_progress is not None:
            on_progress(size, total)
    return FileEntry(digest.hexdigest(), size)


def read_blocks(path: Path) -> Iterator[bytes]:
    """Yield the content of a file in blocks."""
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            yield block


def fsync_path(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
