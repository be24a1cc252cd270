"""A clean end: runs finish, or are left to be resumed; nothing is lost either way."""

from __future__ import annotations

import asyncio
import signal

from tests.system.client import Client, text_of, types
from tests.system.waiting import until
from tests.system.wire_model import Script, says


async def test_a_run_may_finish(own: Client, script: Script) -> None:
    """A run that ends soon after the signal ends well, and its client sees all of it."""
    await own.up.begin()
    script.will(says("Half and ", "half.", hold=1))
    async with own.stream("What is the answer?") as chunks:
        await chunks.until("content")
        own.up.signal(signal.SIGTERM)
        await until(lambda: "Stopping" in own.up.said(), "a word of the signal")
        script.release()
        seen = await chunks.rest()
    assert text_of(seen) == "Half and half."
    assert types(seen)[-1] == "done"
    assert await asyncio.to_thread(own.up.wait) == 0
    assert len(script.asked) == 1
    assert not (own.up.home.data / "gateway.json").exists()


async def test_a_run_is_left_to_be_resumed(own: Client, script: Script) -> None:
    """A run that does not end in time is neither failed nor cancelled: the next start goes on."""
    await own.up.begin()
    script.will(says("Half and ", "half.", hold=1))
    async with own.stream("What is the answer?") as chunks:
        await chunks.until("content")
        own.up.signal(signal.SIGTERM)
        await until(lambda: "Stopping" in own.up.said(), "a word of the signal")
        own.up.advance_clock()
        code = await asyncio.to_thread(own.up.wait)
        seen = await chunks.rest()
    assert code == 0
    assert types(seen)[-1] not in ("done", "error")
    await until(lambda: script.asked[0].left, "the end of the connection to the model")
    (row,) = own.up.home.rows("SELECT status FROM runs")
    assert row["status"] in ("running", "queued")
    script.release()
    await own.up.begin()
    rest = await own.followed(chunks.run_id, seen[-1]["seq"])
    assert text_of([*seen, *rest]) == "Half and half."
    assert types(rest)[-1] == "done"


async def test_a_second_signal(own: Client, script: Script) -> None:
    """Whoever asks twice does not wait for runs; they are resumed all the same."""
    await own.up.begin()
    script.will(says("Half and ", "half.", hold=1))
    async with own.stream("What is the answer?") as chunks:
        await chunks.until("content")
        own.up.signal(signal.SIGINT)
        # The signals of a process are not counted: the first must be seen before the second.
        await until(lambda: "Stopping" in own.up.said(), "a word of the first signal")
        own.up.signal(signal.SIGINT)
        await asyncio.to_thread(own.up.wait)
    script.release()
    await own.up.begin()
    run = await own.ended(chunks.run_id)
    assert (run["status"], run["answer"]) == ("succeeded", "Half and half.")
