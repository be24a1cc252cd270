"""For every test: a loop that must not be blocked, and a clock that can be moved on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from blockbuster import blockbuster_ctx

from tests.clock import Clock


@pytest.fixture(autouse=True)
def unblocked_loop() -> Iterator[None]:
    """Fail when our own code blocks the event loop: reads a file, sleeps, waits for a lock."""
    with blockbuster_ctx("dodona"):
        yield


@pytest.fixture
async def clock() -> AsyncIterator[Clock]:
    """The clock of this test's loop and of Dodona."""
    with Clock().running(asyncio.get_running_loop()) as clock:
        yield clock
