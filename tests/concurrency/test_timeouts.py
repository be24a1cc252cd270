"""Timeouts that stop while their task waits."""

from __future__ import annotations

import asyncio

import pytest

from dodona.concurrency.timeouts import pausable_timeout, paused_timeouts
from tests.clock import Clock


async def test_paused_time_does_not_count(clock: Clock) -> None:
    """For the timeout of the block and for those around it; each keeps the time it has left."""
    async with pausable_timeout(1_000) as outer, pausable_timeout(500) as inner:
        left = [each.when() for each in (outer, inner)]
        with paused_timeouts():
            clock.advance(10_000)
            await asyncio.sleep(0)
            assert [outer.when(), inner.when()] == [None, None]
        now = [each.when() for each in (outer, inner)]
        assert all(a and b and a >= b + 10_000 for a, b in zip(now, left, strict=True))
    assert [outer.expired(), inner.expired()] == [False, False]


async def test_other_time_counts(clock: Clock) -> None:
    """Before a pause and after it."""

    async def outlast() -> None:
        async with pausable_timeout(1_000):
            with paused_timeouts():
                await asyncio.sleep(0)
            clock.advance(10_000)
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await outlast()


async def test_an_error_in_a_pause_ends_it() -> None:
    """The timeout runs again."""
    async with pausable_timeout(1_000) as timeout:
        with pytest.raises(ValueError, match="no turn"), paused_timeouts():
            raise ValueError("no turn")
        assert timeout.when() is not None
