"""A store in a file of its own for each test, and what is said into it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dodona.store import Store


@pytest.fixture
async def storage(migrated_file: Path, tmp_path: Path) -> AsyncIterator[Store]:
    file = tmp_path / "dodona.db"
    shutil.copyfile(migrated_file, file)
    async with await Store.open(str(file), redact=str) as opened:
        yield opened
