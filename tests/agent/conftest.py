"""A store's file of its own for each test of the agent."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dodona.models.token_counter import OfflineTokenCounter


@pytest.fixture(scope="session")
def vocabulary() -> None:
    """Reading a vocabulary takes long, and must not happen in a loop."""
    OfflineTokenCounter().count("warm", "scripted")


@pytest.fixture
def file(vocabulary: None, migrated_file: Path, tmp_path: Path) -> Path:
    """An empty store."""
    return Path(shutil.copyfile(migrated_file, tmp_path / "dodona.db"))
