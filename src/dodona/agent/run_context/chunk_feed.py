"""The feed of a run: its chunks, numbered as they are made, for any number of readers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from dodona.core.chunks import SEQ_PER_ATTEMPT, StreamChunk

# Takes secrets out of every text in a JSON value.
Redact: TypeAlias = Callable[[Any], Any]


def no_redaction(value: Any) -> Any:
    return value


class ChunkFeed:
    """Chunks of one attempt, after those that earlier ones left.

    A reader takes all that has gathered since it last looked, so a slow one holds up nobody.
    """

    __slots__ = (
        "_chunks",
        "_is_closed",
        "_redact",
        "_seq_counter",
        "_waiters",
        "run_id",
        "user_id",
    )

    def __init__(
        self, run_id: int, attempt: int, user_id: str, *, redact: Redact = no_redaction
    ) -> None:
        self._redact = redact
        self.run_id = run_id
        self.user_id = user_id
        self._seq_counter = attempt * SEQ_PER_ATTEMPT
        self._chunks: list[StreamChunk] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._is_closed = False

    def assign_seq(self, body: Mapping[str, Any]) -> StreamChunk:
        """Give a chunk its place, without showing it yet."""
        self._seq_counter += 1
        return StreamChunk(self.run_id, self._seq_counter, self._redact(body))

    def resume(self, chunks: Sequence[StreamChunk]) -> None:
        """Begin with what was shown before; the next number follows the last of it."""
        self._seq_counter = chunks[-1].seq
        self.publish(chunks)

    def publish(self, chunks: Sequence[StreamChunk]) -> None:
        self._chunks.extend(chunks)
        self._wake_waiters()

    def append(self, body: Mapping[str, Any]) -> list[Any]:
        """Number and show it; as a step keeps it."""
        chunk = self.assign_seq(body)
        self._chunks.append(chunk)
        if self._waiters:
            self._wake_waiters()
        return [chunk.seq, chunk.body]

    @property
    def last_seq(self) -> int:
        """The place of the last chunk that was shown; 0 when none was."""
        return self._chunks[-1].seq if self._chunks else 0

    def chunks_after(self, seq: int) -> list[StreamChunk]:
        """What was shown after a place."""
        return self._chunks[self._index_after(seq) :]

    def close(self) -> None:
        """Nothing more will come."""
        self._is_closed = True
        self._wake_waiters()

    async def stream(self, after_seq: int = 0) -> AsyncGenerator[list[StreamChunk]]:
        """All that comes after a place, in batches, until the feed is closed."""
        at = 0
        while True:
            if at < len(self._chunks):
                # Not only at first: what earlier attempts left is shown a moment after it begins.
                if self._chunks[at].seq <= after_seq:
                    at = self._index_after(after_seq)
                batch = self._chunks[at:]
                at = len(self._chunks)
                if batch:
                    yield batch
            elif self._is_closed:
                return
            else:
                await self._wait_for_chunk()

    def _index_after(self, after_seq: int) -> int:
        return next(
            (i for i, chunk in enumerate(self._chunks) if chunk.seq > after_seq), len(self._chunks)
        )

    async def _wait_for_chunk(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiters.append(future)
        await future

    def _wake_waiters(self) -> None:
        readers, self._waiters = self._waiters, []
        for reader in readers:
            if not reader.done():
                reader.set_result(None)
