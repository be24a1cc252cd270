"""The feed of a run: its chunks, numbered as they are made, for any number of readers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from dodona.core.chunks import ATTEMPT, Chunk

# Takes secrets out of every text in a JSON value.
Redact: TypeAlias = Callable[[Any], Any]


def no_redaction(value: Any) -> Any:
    return value


class ChunkFeed:
    """Chunks of one attempt, after those that earlier ones left.

    A reader takes all that has gathered since it last looked, so a slow one holds up nobody.
    """

    __slots__ = ("_chunks", "_hide", "_is_closed", "_next", "_readers", "run_id", "user_id")

    def __init__(
        self, run_id: int, attempt: int, user_id: str, *, hide: Redact = no_redaction
    ) -> None:
        self._hide = hide
        self.run_id = run_id
        self.user_id = user_id
        self._next = attempt * ATTEMPT
        self._chunks: list[Chunk] = []
        self._readers: list[asyncio.Future[None]] = []
        self._is_closed = False

    def assign_seq(self, body: Mapping[str, Any]) -> Chunk:
        """Give a chunk its place, without showing it yet."""
        self._next += 1
        return Chunk(self.run_id, self._next, self._hide(body))

    def resume(self, told: Sequence[Chunk]) -> None:
        """Begin with what was shown before; the next number follows the last of it."""
        self._next = told[-1].seq
        self.publish(told)

    def publish(self, chunks: Sequence[Chunk]) -> None:
        self._chunks.extend(chunks)
        self._wake_readers()

    def append(self, body: Mapping[str, Any]) -> list[Any]:
        """Number and show it; as a step keeps it."""
        chunk = self.assign_seq(body)
        self._chunks.append(chunk)
        if self._readers:
            self._wake_readers()
        return [chunk.seq, chunk.body]

    @property
    def last(self) -> int:
        """The place of the last chunk that was shown; 0 when none was."""
        return self._chunks[-1].seq if self._chunks else 0

    def after(self, place: int) -> list[Chunk]:
        """What was shown after a place."""
        return self._chunks[self._index(place) :]

    def close(self) -> None:
        """Nothing more will come."""
        self._is_closed = True
        self._wake_readers()

    async def follow(self, after: int = 0) -> AsyncGenerator[list[Chunk]]:
        """All that comes after a place, in batches, until the feed is closed."""
        at = 0
        while True:
            if at < len(self._chunks):
                # Not only at first: what earlier attempts left is shown a moment after it begins.
                if self._chunks[at].seq <= after:
                    at = self._index(after)
                batch = self._chunks[at:]
                at = len(self._chunks)
                if batch:
                    yield batch
            elif self._is_closed:
                return
            else:
                await self._stirred()

    def _index(self, after: int) -> int:
        return next(
            (i for i, chunk in enumerate(self._chunks) if chunk.seq > after), len(self._chunks)
        )

    async def _stirred(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._readers.append(future)
        await future

    def _wake_readers(self) -> None:
        readers, self._readers = self._readers, []
        for reader in readers:
            if not reader.done():
                reader.set_result(None)
