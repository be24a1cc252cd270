"""A real store for the meter, as the app hands it over."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dodona.store import Store


@pytest.fixture
async def store(migrated_file: Path, tmp_path: Path) -> AsyncIterator[Store]:
    file = tmp_path / "dodona.db"
    shutil.copyfile(migrated_file, file)
    async with await Store.open(str(file), redact=str) as opened:
        yield opened
