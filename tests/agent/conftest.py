"""A store's file of its own for each test of the agent."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dodona.models.token_counter import OfflineTokenCounter
from dodona.store import migrate, parse_location


@pytest.fixture(scope="session")
def made_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Making a store takes longer than most tests: this one is copied.

    So does reading a vocabulary, which must not happen in a loop.
    """
    OfflineTokenCounter().count("warm", "scripted")
    file = tmp_path_factory.mktemp("made") / "dodona.db"
    migrate(parse_location(str(file)))
    return file


@pytest.fixture
def file(made_file: Path, tmp_path: Path) -> Path:
    """Where a store is that has nothing in it."""
    return Path(shutil.copyfile(made_file, tmp_path / "dodona.db"))
