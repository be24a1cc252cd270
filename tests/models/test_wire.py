"""A call over HTTP: opened once, timed, bounded, closed."""

from __future__ import annotations

import asyncio
import json

import pytest

from dodona.core.errors import ProviderError, ProviderErrorKind
from dodona.core.messages import UserText
from dodona.core.ports.model import ModelRequest, TextDelta
from dodona.models import Timeouts, connect, wire
from dodona.net.http import HttpPool
from dodona.net.redactor import Redactor
from tests.models.wire_server import Reply, gather, named, refusal, sse, talking

GO = ModelRequest((UserText("go"),))
HELLO = sse({"choices": [{"delta": {"content": "Hel"}}]})
WHOLE = sse({"choices": [{"delta": {"content": "Hello"}, "finish_reason": "stop"}]}, "[DONE]")
SOON = Timeouts(connect=5, first_token=0.05, gap=0.05)


async def test_leaving_in_mid_answer_closes_the_connection() -> None:
    """Whoever has heard enough does not pay for the rest."""
    async with talking("openai", Reply([HELLO], end="hang")) as (model, server):
        async with model.stream(GO) as stream:
            assert await anext(stream) == TextDelta("Hel")
        await asyncio.wait_for(server.left.wait(), 5)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)


@pytest.mark.parametrize("pieces", [[HELLO], []])
async def test_cancelling_closes_the_connection(pieces: list[bytes]) -> None:
    """In mid-answer, and before the first word."""
    async with talking("openai", Reply(pieces, end="hang")) as (model, server):
        heard = asyncio.Event()

        async def listen() -> None:
            async with model.stream(GO) as stream:
                async for _ in stream:
                    heard.set()

        task = asyncio.create_task(listen())
        if pieces:
            await heard.wait()
        await server.reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.left.wait(), 5)


async def test_an_answer_that_was_heard_leaves_its_connection_to_the_next() -> None:
    """Ten calls in turn, one connection."""
    async with talking("openai", Reply([WHOLE])) as (model, server):
        for _ in range(10):
            _, error = await gather(model, GO)
            assert error is None
    assert len(server.peers) == 1


async def test_calls_at_once_do_not_mix() -> None:
    """A model may be asked any number of things at the same time."""
    replies = [
        Reply(
            [sse({"choices": [{"delta": {"content": str(n)}, "finish_reason": "stop"}]}, "[DONE]")]
        )
        for n in range(30)
    ]
    async with talking("openai", *replies) as (model, _):
        answers = await asyncio.gather(*(gather(model, GO) for _ in range(30)))
    said = [event.text for events, _ in answers for event in events if isinstance(event, TextDelta)]
    assert sorted(said) == sorted(str(n) for n in range(30))


async def test_a_stream_that_is_not_listened_to_asks_nothing() -> None:
    """The request goes out with the first `anext`."""
    async with talking("openai", Reply([WHOLE])) as (model, server):
        async with model.stream(GO):
            pass
        assert server.asked == []


async def test_nobody_there() -> None:
    """The error says so, and that it may be tried again."""
    async with HttpPool() as http:
        model = connect(
            "openai-compatible",
            "m",
            http=http,
            redactor=Redactor(),
            base_url="http://127.0.0.1:9",
        )
        _, error = await gather(model, GO)
    assert error is not None
    assert error.kind is ProviderErrorKind.CONNECTION
    assert error.message.startswith("openai-compatible cannot be reached: ")


@pytest.mark.parametrize("pieces", [[], [b": thinking about it\n\n"], [named({"type": "ping"})]])
async def test_no_first_token_in_time(pieces: list[bytes]) -> None:
    """Signs of life are no token."""
    provider = "anthropic" if pieces and pieces[0].startswith(b"event") else "openai"
    async with talking(provider, Reply(pieces, end="hang"), timeouts=SOON) as (model, server):
        _, error = await gather(model, GO)
        assert error is not None
        assert error.kind is ProviderErrorKind.NO_FIRST_TOKEN
        assert error.message == f"{provider} did not respond within 0.05 seconds."
        await asyncio.wait_for(server.left.wait(), 5)


async def test_a_gap_in_mid_answer() -> None:
    """What was said until then is delivered."""
    timeouts = Timeouts(gap=0.05)
    async with talking("openai", Reply([HELLO], end="hang"), timeouts=timeouts) as (model, _):
        events, error = await gather(model, GO)
    assert events == [TextDelta("Hel")]
    assert error is not None
    assert error.kind is ProviderErrorKind.INTERRUPTED


async def test_what_only_keeps_the_line_open_is_no_answer() -> None:
    """Comments come and come; no event does."""
    timeouts = Timeouts(gap=0.1)
    pings = Reply([HELLO, *[b": ping\n\n"] * 1000], end="hang", every=0.01)
    async with talking("openai", pings, timeouts=timeouts) as (model, _):
        events, error = await asyncio.wait_for(gather(model, GO), 5)
    assert events == [TextDelta("Hel")]
    assert error is not None
    assert error.kind is ProviderErrorKind.INTERRUPTED


async def test_an_error_that_is_sent_slowly_is_told_by_its_status(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A provider in trouble may not even finish to say so."""
    monkeypatch.setattr(wire, "ERROR_READ_TIMEOUT", 0.05)
    error = await refusal("openai", Reply([b'{"err'], status=503, end="hang"), GO)
    assert (error.kind, error.status) == (ProviderErrorKind.SERVER, 503)


@pytest.mark.parametrize("piece", [b": x\n", b"data: " + b"y" * 1_000])
async def test_an_answer_without_end_is_bounded(
    monkeypatch: pytest.MonkeyPatch, piece: bytes
) -> None:
    """Neither comments nor one endless event fill the memory."""
    monkeypatch.setattr(wire, "MAX_ANSWER_BYTES", 100_000)
    pieces = [HELLO, *([piece] * 40_000)]
    async with talking("openai", Reply(pieces)) as (model, _):
        events, error = await gather(model, GO)
    assert events == [TextDelta("Hel")]
    assert error is not None
    assert error.kind is ProviderErrorKind.MALFORMED
    assert "larger than 100,000 bytes" in error.message


async def test_an_event_without_end_is_bounded() -> None:
    """Eight megabytes are enough for anyone's word."""
    pieces = [HELLO, b"data: ", *([b"y" * 100_000] * 100)]
    error = await refusal("openai", Reply(pieces), GO)
    assert error.kind is ProviderErrorKind.MALFORMED
    assert "an event is larger than 8,388,608 bytes" in error.message


async def test_usage_is_known_while_a_stream_runs() -> None:
    """A call that is cut short still has an account."""
    start = {"type": "message_start", "message": {"usage": {"input_tokens": 7, "output_tokens": 1}}}
    begun = {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "text", "text": "a"},
    }
    async with (
        talking("anthropic", Reply([named(start, begun)], end="hang")) as (model, _),
        model.stream(GO) as stream,
    ):
        assert stream.usage.input_tokens == 0
        assert await anext(stream) == TextDelta("a")
        assert (stream.usage.input_tokens, stream.usage.output_tokens) == (7, 1)


async def test_a_failure_is_raised_once() -> None:
    """Afterwards the stream is at its end."""
    async with (
        talking("openai", Reply([HELLO, b"data: {\n\n"])) as (model, _),
        model.stream(GO) as stream,
    ):
        assert await anext(stream) == TextDelta("Hel")
        with pytest.raises(ProviderError):
            await anext(stream)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)


async def test_what_comes_after_the_end_is_not_read() -> None:
    """A server that goes on after `[DONE]` is not listened to, nor waited for."""
    more = sse({"choices": [{"delta": {"content": "and"}}]})
    async with talking("openai", Reply([WHOLE + more, more], end="hang")) as (model, server):
        events, error = await gather(model, GO)
        assert error is None
        assert [event.text for event in events if isinstance(event, TextDelta)] == ["Hello"]
        await asyncio.wait_for(server.left.wait(), 5)


class CountingRedactor(Redactor):
    """Counts the texts it is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.shown = 0

    def redact(self, text: str) -> str:
        self.shown += 1
        return super().redact(text)


@pytest.mark.parametrize(("provider", "whole"), [("openai", WHOLE), ("anthropic", b"")])
async def test_history_is_encoded_once(provider: str, whole: bytes) -> None:
    """A longer request looks at what is new in it, not at what was sent before."""
    redactor = CountingRedactor()
    said = tuple(UserText(f"message {n}") for n in range(50))
    reply = Reply([whole or named({"type": "message_stop"})])
    async with talking(provider, reply, redactor=redactor) as (model, _):
        await gather(model, ModelRequest(said))
        assert redactor.shown == 50
        await gather(model, ModelRequest((*said, UserText("one more"))))
        assert redactor.shown == 51


async def test_a_long_history_is_sent_whole() -> None:
    """More than a megabyte goes out in pieces."""
    request = ModelRequest(tuple(UserText("x" * 1_000) for _ in range(3_000)))
    async with talking("openai", Reply([WHOLE])) as (model, server):
        _, error = await gather(model, request)
    assert error is None
    assert len(json.loads(server.asked[0].body)["messages"]) == 3_000
