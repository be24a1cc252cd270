"""What every test gets: a loop that nobody may block."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from blockbuster import blockbuster_ctx


@pytest.fixture(autouse=True)
def unblocked_loop() -> Iterator[None]:
    """Fail when our own code blocks the event loop: reads a file, sleeps, waits for a lock."""
    with blockbuster_ctx("dodona"):
        yield
