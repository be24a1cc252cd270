"""What a client has heard of a run that was resumed follows from what is durable."""

from __future__ import annotations

from typing import Any

from dodona.agent.run.replay import contiguous_prefix, replay_chunks
from dodona.core.chunks import ContentChunk, StreamChunk


def said(seq: int) -> StreamChunk:
    return StreamChunk(7, seq, ContentChunk(str(seq)))


def heard(told: list[StreamChunk]) -> list[Any]:
    """What is left for somebody who drops what each restart says."""
    left: list[StreamChunk] = []
    for chunk in told:
        if chunk.as_json()["type"] == "restart":
            left = [each for each in left if each.seq <= chunk.as_json()["discard_after"]]
        else:
            left.append(chunk)
    return [chunk.as_json()["content"] for chunk in left]


def test_one_attempt_is_as_it_was() -> None:
    """In the order of its numbers."""
    assert replay_chunks(7, [said(1_000_002), said(1_000_001)], 1) == [
        said(1_000_001),
        said(1_000_002),
    ]


def test_a_restart_names_the_last_that_counts() -> None:
    """It is the first chunk of its attempt, also when nothing was durable before."""
    told = replay_chunks(7, [said(1_000_001)], 2)
    assert [(chunk.seq, chunk.as_json()["type"]) for chunk in told] == [
        (1_000_001, "content"),
        (2_000_001, "restart"),
    ]
    assert told[1].as_json()["discard_after"] == 1_000_001
    (alone,) = replay_chunks(7, [], 2)
    assert alone.as_json()["discard_after"] == 0


def test_what_came_after_a_gap_is_told_again() -> None:
    """The client may have heard what is missing, so it drops that and what followed it."""
    told = replay_chunks(7, [said(1_000_001), said(1_000_003), said(2_000_003)], 2)
    assert told[1].as_json()["discard_after"] == 1_000_001
    assert [chunk.seq for chunk in told] == [1_000_001, 2_000_001, 2_000_002, 2_000_003]
    assert heard(told) == ["1000001", "1000003", "2000003"]


def test_attempts_add_up() -> None:
    """Whatever was durable is heard once, in the order in which it was last told."""
    durable = [said(n) for n in (1_000_001, 1_000_003, 2_000_004, 3_000_003)]
    told = replay_chunks(7, durable, 3)
    assert heard(told) == ["1000001", "1000003", "2000004", "3000003"]
    assert [chunk.seq for chunk in told] == sorted({chunk.seq for chunk in told})


def test_an_open_step_holds_up_those_after_it() -> None:
    """Until it has ended, or its attempt has: who comes back by number then misses nothing."""
    told = [said(1_000_001), said(1_000_003)]
    assert contiguous_prefix(told, 1) == told[:1]
    assert contiguous_prefix([said(1_000_001), said(1_000_002)], 1)[-1].seq == 1_000_002
