"""The loop monitor: code that blocks the loop is reported while it runs."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from types import CodeType

from dodona.concurrency.loop_monitor import BLOCKED_SECONDS, watch_loop

Blocks = list[tuple[tuple[CodeType, int], ...]]


def block(seconds: float) -> None:
    """Block the loop as code of an extension does."""
    time.sleep(seconds)


async def test_blocking_code_is_reported_while_it_runs() -> None:
    """With the code that runs, innermost first; within a second of the start of the block."""
    found: Blocks = []
    reported = threading.Event()

    def on_block(running: tuple[tuple[CodeType, int], ...]) -> None:
        found.append(running)
        reported.set()

    async with watch_loop(on_block):
        await asyncio.sleep(0.3)
        assert block_until(reported)
    places = [(Path(code.co_filename).name, code.co_name) for code, _ in found[0]]
    assert ("test_loop_monitor.py", "block_until") in places
    assert places.index(("threading.py", "wait")) < places.index(
        (Path(__file__).name, "block_until")
    )


def block_until(reported: threading.Event) -> bool:
    """Block until the monitor has reported it; the machine may be busy."""
    return reported.wait(30)


async def test_one_block_is_reported_once() -> None:
    """However long it is; the next one is reported again."""
    found: Blocks = []
    async with watch_loop(found.append):
        for _ in range(2):
            await asyncio.sleep(0.3)
            block(4 * BLOCKED_SECONDS)
            await asyncio.sleep(0.3)
    ours = [each for each in found if any(code.co_name == "block" for code, _ in each)]
    assert len(ours) == 2


async def test_a_loop_that_waits_is_not_blocked() -> None:
    """Code in a thread does not count either."""
    found: Blocks = []
    async with watch_loop(found.append):
        await asyncio.sleep(0.2)
        await asyncio.to_thread(block, 3 * BLOCKED_SECONDS)
    assert [each for each in found if any(code.co_name == "block" for code, _ in each)] == []


async def test_nothing_is_reported_after_the_end() -> None:
    """The thread of the monitor ends."""
    found: Blocks = []
    async with watch_loop(found.append):
        await asyncio.sleep(0.2)
    block(3 * BLOCKED_SECONDS)
    assert found == []
    names = [thread.name for thread in threading.enumerate()]
    assert "loop-monitor" not in names
