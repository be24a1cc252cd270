"""How-to guides, explanations and the README: what they print has been run."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOW_TO = sorted((ROOT / "docs" / "how-to").glob("*.md"))
OTHERS = [
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "explanation").rglob("*.md")),
    *sorted((ROOT / "docs" / "reference").glob("*.md")),
]

pytestmark = pytest.mark.timeout(180)

Execute = Callable[[Path], "subprocess.CompletedProcess[str]"]


@pytest.mark.parametrize("page", HOW_TO, ids=lambda page: page.stem)
def test_a_guide_runs_as_written(execute: Execute, page: Path) -> None:
    """Every snippet of a guide is executed, in order."""
    done = execute(page)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) >= 3


@pytest.mark.parametrize("page", OTHERS, ids=lambda page: page.stem)
def test_snippets_of_other_pages_run(execute: Execute, page: Path) -> None:
    """Python runs and trees read, wherever they stand."""
    done = execute(page)
    assert done.returncode == 0, done.stdout + done.stderr
