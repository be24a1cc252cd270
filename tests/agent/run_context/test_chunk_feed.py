"""The feed of a run: any number of readers, each from its place to the end."""

from __future__ import annotations

import asyncio

from dodona.agent.run_context.chunk_feed import ChunkFeed
from dodona.core.chunks import SEQ_PER_ATTEMPT, ContentChunk, StreamChunk


async def read(feed: ChunkFeed, after: int = 0) -> list[StreamChunk]:
    return [chunk async for batch in feed.stream(after) for chunk in batch]


async def test_every_reader_gets_all() -> None:
    """Whether it came early or late; nobody waits for anybody."""
    feed = ChunkFeed(7, 1, "ada")
    early = asyncio.create_task(read(feed))
    await asyncio.sleep(0)
    for word in ("a", "b"):
        feed.append(ContentChunk(word))
    late = asyncio.create_task(read(feed))
    await asyncio.sleep(0)
    feed.append(ContentChunk("c"))
    feed.close()

    found = await early
    assert found == await late == await read(feed)
    assert [chunk.as_json()["content"] for chunk in found] == ["a", "b", "c"]
    assert [chunk.seq for chunk in found] == [
        SEQ_PER_ATTEMPT + 1,
        SEQ_PER_ATTEMPT + 2,
        SEQ_PER_ATTEMPT + 3,
    ]


async def test_a_reader_begins_after_its_place() -> None:
    """What it has seen does not come again, also of earlier attempts."""
    feed = ChunkFeed(7, 2, "ada")
    feed.publish([StreamChunk(7, SEQ_PER_ATTEMPT + n, ContentChunk("old")) for n in (1, 2, 5)])
    feed.append(ContentChunk("new"))
    feed.close()

    assert [c.seq for c in await read(feed, SEQ_PER_ATTEMPT + 2)] == [
        SEQ_PER_ATTEMPT + 5,
        2 * SEQ_PER_ATTEMPT + 1,
    ]
    assert [c.seq for c in await read(feed, SEQ_PER_ATTEMPT + 3)] == [
        SEQ_PER_ATTEMPT + 5,
        2 * SEQ_PER_ATTEMPT + 1,
    ]
    assert await read(feed, 2 * SEQ_PER_ATTEMPT + 1) == []


async def test_a_slow_reader_takes_what_has_gathered() -> None:
    """A burst is one batch to whoever was busy meanwhile."""
    feed = ChunkFeed(7, 1, "ada")
    batches = feed.stream()
    feed.append(ContentChunk("0"))
    assert len(await anext(batches)) == 1
    for number in range(100):
        feed.append(ContentChunk(f"{number}"))
    assert len(await anext(batches)) == 100
    await batches.aclose()


async def test_a_reader_that_leaves_disturbs_nobody() -> None:
    """Cancelled while it waits: the others go on."""
    feed = ChunkFeed(7, 1, "ada")
    gone, stays = asyncio.create_task(read(feed)), asyncio.create_task(read(feed))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait([gone])
    feed.append(ContentChunk("a"))
    feed.close()

    assert len(await stays) == 1
