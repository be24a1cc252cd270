from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.code.repository import Repository


@pytest.fixture
def code(tmp_path: Path) -> Iterator[Repository]:
    made = Repository(tmp_path)
    yield made
    made.index.close()
