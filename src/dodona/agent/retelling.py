"""What a client has heard of a run that was resumed, made of what is durable.

Each attempt begins with a `restart`: it names the last chunk that still counts. Of steps that ran
side by side a later one may have been durable first; what came after such a gap is dropped with
the rest, and told again right after the `restart`, under new numbers. All of it follows from the
chunks themselves, so that whoever reads later hears the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dodona.core import chunks
from dodona.core.chunks import ATTEMPT, Chunk

RESTARTED: Final = "The process was restarted."


def replay_chunks(run_id: int, durable: Iterable[Chunk], attempt: int) -> list[Chunk]:
    """All that was shown up to an attempt, in order; of the attempt itself what is durable."""
    own: dict[int, list[Chunk]] = {}
    for chunk in sorted(durable, key=lambda chunk: chunk.seq):
        own.setdefault(chunk.seq // ATTEMPT, []).append(chunk)
    told = own.get(1, [])
    for number in range(2, attempt + 1):
        told = [*_with_restart(run_id, told, number), *own.get(number, [])]
    return told


def contiguous_prefix(told: list[Chunk], attempt: int) -> list[Chunk]:
    """Up to the first number that is missing in an attempt: a step that has not ended."""
    expected = attempt * ATTEMPT
    for index, chunk in enumerate(told):
        if chunk.seq > expected:
            expected += 1
            if chunk.seq != expected:
                return told[:index]
    return told


def _with_restart(run_id: int, told: list[Chunk], attempt: int) -> list[Chunk]:
    still = contiguous_prefix(told, attempt - 1)
    last = still[-1].seq if still else 0
    again = [chunks.restart(last, RESTARTED), *(chunk.body for chunk in told[len(still) :])]
    first = attempt * ATTEMPT + 1
    return [*still, *(Chunk(run_id, first + n, body) for n, body in enumerate(again))]
