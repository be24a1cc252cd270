"""Global keys in a JSON file, for trees that run without a store."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

from dodona.core.errors import StoreError


class FileKeyValue:
    """A `KeyValueStore` in one file that is rewritten atomically."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def get(self, keys: Iterable[str]) -> Mapping[str, Any]:
        names = set(keys)
        values = await asyncio.to_thread(self._read)
        return {key: value for key, value in values.items() if key in names}

    async def put(self, changes: Mapping[str, Any]) -> None:
        await asyncio.to_thread(self._write, dict(changes))

    def _read(self) -> dict[str, Any]:
        try:
            values = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise StoreError(
                f"cannot read the global keys in {self._path}: {error}.",
                hint="Fix or remove the file.",
            ) from error
        if not isinstance(values, dict):
            raise StoreError(
                f"{self._path} does not contain a JSON object.", hint="Fix or remove the file."
            )
        return values  # pyright: ignore[reportUnknownVariableType]

    def _write(self, changes: dict[str, Any]) -> None:
        try:
            with self._exclusive_lock():
                text = json.dumps({**self._read(), **changes}, indent=2, sort_keys=True)
                self._replace(text + "\n")
        except (OSError, TypeError, ValueError) as error:
            raise StoreError(
                f"cannot write the global keys to {self._path}: {error}.",
                hint="The file was not changed.",
            ) from error

    @contextmanager
    def _exclusive_lock(self) -> Generator[None]:
        """Prevent concurrent updates by other runs and other processes."""
        # Lock the folder, not the file, because the file is replaced by a new one.
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            flock(folder, LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _replace(self, text: str) -> None:
        handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self._path)
        except OSError:
            os.unlink(name)
            raise
