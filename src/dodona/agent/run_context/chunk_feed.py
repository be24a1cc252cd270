"""The chunk feed of a run: numbered chunks for any number of readers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from time import time
from typing import Any, Final, TypeAlias, cast, get_args

from msgspec import UNSET, UnsetType, ValidationError, convert
from msgspec.structs import replace

from dodona.core.chunks import (
    SEQ_PER_ATTEMPT,
    AnyChunk,
    ContentChunk,
    DoneChunk,
    ErrorChunk,
    RestartChunk,
    StreamChunk,
    SystemChunk,
    ThinkingChunk,
    Untrusted,
)
from dodona.core.errors import TreeError
from dodona.core.json_document import Timestamp, to_builtins

# Readers stop at a done or an error chunk, so only the end of the run publishes one.
_LEAF_CHUNKS: Final = frozenset(get_args(AnyChunk)) - {DoneChunk, ErrorChunk}

# Redacts secrets in every string of a JSON value.
Redact: TypeAlias = Callable[[Any], Any]


def no_redaction(value: Any) -> Any:
    """Return the value unchanged."""
    return value


class ChunkFeed:
    """Chunks of one attempt, after the durable chunks of earlier attempts.

    A reader gets all chunks since its last read in one batch, so a slow reader blocks no one.
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

    def assign_seq(self, chunk: AnyChunk) -> StreamChunk:
        """Number a chunk without publishing it. Secrets are redacted; a system chunk is dated."""
        self._seq_counter += 1
        redacted: AnyChunk
        if isinstance(chunk, ContentChunk):  # one for each token of the model, like the next
            redacted = ContentChunk(self._redact(chunk.content), chunk.untrusted)
        elif isinstance(chunk, ThinkingChunk):
            redacted = ThinkingChunk(self._redact(chunk.content), chunk.untrusted)
        else:
            if isinstance(chunk, SystemChunk):
                chunk = replace(chunk, timestamp=str(Timestamp(time())))
            redacted = convert(self._redact(to_builtins(chunk)), type(chunk))
        return StreamChunk(self.run_id, self._seq_counter, redacted)

    def preload(self, chunks: Sequence[StreamChunk]) -> None:
        """Start with the chunks of earlier attempts; numbering continues after the last one."""
        self._seq_counter = chunks[-1].seq
        self.publish(chunks)

    def publish(self, chunks: Sequence[StreamChunk]) -> None:
        self._chunks.extend(chunks)
        self._wake_waiters()

    def append(self, chunk: AnyChunk) -> StreamChunk:
        """Number and publish a chunk; return it as steps store it."""
        numbered = self.assign_seq(chunk)
        self._chunks.append(numbered)
        if self._waiters:
            self._wake_waiters()
        return numbered

    def append_output(
        self, output: object, *, untrusted: Untrusted | UnsetType = UNSET
    ) -> StreamChunk:
        """Number and publish the output of a leaf. Raise TreeError if readers could not read it."""
        try:
            return self.append(_to_chunk(output, untrusted))
        except ValidationError as error:
            raise TreeError(f"cannot send this {type(output).__name__}: {error}.") from error

    @property
    def last_seq(self) -> int:
        """Sequence number of the last published chunk; 0 if there is none."""
        return self._chunks[-1].seq if self._chunks else 0

    def text(self) -> str:
        """The answer so far, as clients show it that discard what a restart names."""
        parts: list[tuple[int, str]] = []
        for each in self._chunks:
            if isinstance(each.chunk, ContentChunk):
                parts.append((each.seq, each.chunk.content))
            elif isinstance(each.chunk, RestartChunk):
                parts = [part for part in parts if part[0] <= each.chunk.discard_after]
        return "".join([text for _, text in parts])

    def chunks_after(self, seq: int) -> list[StreamChunk]:
        """Published chunks after a sequence number."""
        return self._chunks[self._index_after(seq) :]

    def close(self) -> None:
        """End the feed: readers stop after the last chunk."""
        self._is_closed = True
        self._wake_waiters()

    async def stream(self, after_seq: int = 0) -> AsyncGenerator[list[StreamChunk]]:
        """Stream the chunks after a sequence number, in batches, until the feed is closed."""
        index = 0
        while True:
            if index < len(self._chunks):
                # Checked each time: chunks of earlier attempts may be published after the start.
                if self._chunks[index].seq <= after_seq:
                    index = self._index_after(after_seq)
                batch = self._chunks[index:]
                index = len(self._chunks)
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
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def _to_chunk(output: object, untrusted: Untrusted | UnsetType) -> AnyChunk:
    """Return the chunk for a leaf's output: a text is content, and a chunk is itself."""
    if isinstance(output, str):
        output = ContentChunk(output, untrusted)
    if type(output) not in _LEAF_CHUNKS:
        raise TreeError(
            f"cannot send a value of type {type(output).__name__}.",
            hint="Send a text, or a chunk of dodona.core.chunks other than done and error.",
        )
    chunk = cast("AnyChunk", output)
    if isinstance(chunk, ContentChunk | ThinkingChunk):  # for the others, `assign_seq` checks
        convert(chunk.content, str)
    return chunk
