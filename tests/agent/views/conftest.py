"""A store in a file of its own for each test, and what is said into it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dodona.store import Store, migrate, parse_location


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Making a store takes longer than most tests: this one is copied."""
    file = tmp_path_factory.mktemp("migrated") / "dodona.db"
    migrate(parse_location(str(file)))
    return file


@pytest.fixture
async def storage(migrated_file: Path, tmp_path: Path) -> AsyncIterator[Store]:
    file = tmp_path / "dodona.db"
    shutil.copyfile(migrated_file, file)
    async with await Store.open(str(file), redact=str) as opened:
        yield opened
