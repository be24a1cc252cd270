"""Folders with notes in them, and models that say what tests want."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.running import dodona
from tests.cli.slow_model import SlowModel, slow_model


@pytest.fixture
def scripted(tmp_path: Path) -> Callable[[str], None]:
    """Write a config whose model gives these answers (TOML)."""

    def write(answers: str) -> None:
        (tmp_path / "answers.toml").write_text(answers, encoding="utf-8")
        (tmp_path / "dodona.toml").write_text(
            "[agent]\nprovider = 'scripted'\nmodel = 'answers.toml'\n", encoding="utf-8"
        )

    return write


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[SlowModel]:
    """A model that waits in the middle of its answer, and a config that names it."""
    with slow_model() as model:
        (tmp_path / "dodona.toml").write_text(model.config, encoding="utf-8")
        assert dodona(tmp_path, "trust", "--yes").returncode == 0
        yield model
