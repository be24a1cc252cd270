"""Every provider, over real HTTP, against aimock: what is said when something goes wrong."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from dodona.core.errors import ProviderError, ProviderErrorKind
from dodona.core.ports.model import Model, ModelEvent, ModelRequest, TextDelta
from dodona.models import PROVIDERS, Timeouts
from dodona.net.http import HttpPool
from tests.conformance.models.asking import ask, end, of, question
from tests.conformance.models.line import Line
from tests.conformance.models.matrix import Subject
from tests.conformance.models.mock import Aimock

LONG = "The leaves of the oak rustle, and the priests listen. " * 40
NEVER = 60_000  # milliseconds, longer than any test may take


async def fails(model: Model, request: ModelRequest) -> tuple[ProviderError, list[ModelEvent]]:
    """The error a stream ends with, and what came before it."""
    events: list[ModelEvent] = []

    async def read() -> None:
        async with model.stream(request) as stream:
            async for event in stream:
                events.append(event)  # noqa: PERF401 - a comprehension would lose them

    with pytest.raises(ProviderError) as caught:
        await read()
    return caught.value, events


def says_error(prompt: str, status: int, **error: Any) -> dict[str, Any]:
    return {"match": {"userMessage": prompt}, "response": {"error": error, "status": status}}


async def test_429(aimock: Aimock, model: Model, subject: Subject, prompt: str) -> None:
    """A rate limit is worth another try, after the time the provider asks for."""
    limited = says_error(prompt, 429, message="Slow down.", type="rate_limit_error")
    limited["response"]["retryAfter"] = 7
    await aimock.answers(limited)
    error, events = await fails(model, question(prompt))
    assert (error.kind, error.status, error.retry_after) == (
        ProviderErrorKind.RATE_LIMITED,
        429,
        7.0,
    )
    assert (error.provider, error.is_retryable, events) == (subject.provider, True, [])
    assert "Slow down." in str(error)


@pytest.mark.parametrize("status", [500, 503, 529])
async def test_500(aimock: Aimock, model: Model, prompt: str, status: int) -> None:
    """A server's failure is worth another try, and its own words are told."""
    await aimock.answers(says_error(prompt, status, message="The oak is ill.", type="api_error"))
    error, events = await fails(model, question(prompt))
    assert (error.kind, error.status, error.is_retryable) == (
        ProviderErrorKind.SERVER,
        status,
        True,
    )
    assert "The oak is ill." in str(error)
    assert events == []


async def test_400(aimock: Aimock, model: Model, prompt: str) -> None:
    """A request that is wrong stays wrong."""
    message = "tools.0: Input should be an object"
    await aimock.answers(says_error(prompt, 400, message=message, type="invalid_request_error"))
    error, _ = await fails(model, question(prompt))
    assert (error.kind, error.status, error.is_retryable) == (
        ProviderErrorKind.REJECTED,
        400,
        False,
    )
    assert message in str(error)


async def test_too_long(aimock: Aimock, model: Model, subject: Subject, prompt: str) -> None:
    """More than the window holds is told apart from other mistakes: another model may hold it."""
    message = "This model's maximum context length is 128000 tokens, however you requested 130000."
    if subject.provider == "anthropic":
        message = "prompt is too long: 208310 tokens > 200000 maximum"
    await aimock.answers(
        says_error(
            prompt,
            400,
            message=message,
            type="invalid_request_error",
            code="context_length_exceeded",
        )
    )
    error, _ = await fails(model, question(prompt))
    assert (error.kind, error.is_retryable) == (ProviderErrorKind.CONTEXT_TOO_LONG, False)


async def test_wrong_key(aimock: Aimock, subject: Subject, http: HttpPool, prompt: str) -> None:
    """A key that is not accepted is told as such, with a remedy and without the key."""
    key = "not-the-right-key"
    error, _ = await fails(subject.at(aimock.url, http, key=key), question(prompt))
    assert (error.kind, error.status, error.is_retryable) == (
        ProviderErrorKind.UNAUTHORIZED,
        401,
        False,
    )
    assert all(variable in error.hint for variable in PROVIDERS[subject.provider].key_env[:1])
    assert error.hint
    assert key not in str(error)


async def test_mid_stream_drop(aimock: Aimock, model: Model, prompt: str) -> None:
    """An answer that breaks off is an error, however much of it came."""
    await aimock.answers(
        {
            "match": {"userMessage": prompt},
            "response": {"content": LONG},
            "latency": 2,  # else aimock closes before its first piece has left
            "truncateAfterChunks": 6,
        }
    )
    error, events = await fails(model, question(prompt))
    assert (error.kind, error.is_retryable) == (ProviderErrorKind.INTERRUPTED, True)
    text = "".join(piece.text for piece in of(TextDelta, events))
    assert text
    assert LONG.startswith(text)


async def test_no_answer(aimock: Aimock, model: Model, prompt: str) -> None:
    """A connection closed before an answer began is worth another try."""
    await aimock.answers(
        {
            "match": {"userMessage": prompt},
            "response": {"content": LONG},
            "chaos": {"disconnectRate": 1},
        }
    )
    error, events = await fails(model, question(prompt))
    assert (error.kind, error.is_retryable, events) == (ProviderErrorKind.CONNECTION, True, [])


async def test_nobody_there(subject: Subject, http: HttpPool, prompt: str) -> None:
    """A server that is not there is told by its address, and is worth another try."""
    with socket.socket() as listener:  # bound and not listening: no other process takes the port
        listener.bind(("127.0.0.1", 0))
        host, port = listener.getsockname()
        error, _ = await fails(subject.at(f"http://{host}:{port}", http), question(prompt))
    assert (error.kind, error.is_retryable) == (ProviderErrorKind.CONNECTION, True)
    assert f"{host}:{port}" in str(error)


async def test_garbled(aimock: Aimock, model: Model, prompt: str) -> None:
    """An answer that is no JSON is told as such, not as a bug of ours."""
    await aimock.answers(
        {
            "match": {"userMessage": prompt},
            "response": {"content": LONG},
            "chaos": {"malformedRate": 1},
        }
    )
    error, _ = await fails(model, question(prompt))
    assert error.kind is ProviderErrorKind.MALFORMED


async def test_slow_first_token(
    aimock: Aimock, line: Line, subject: Subject, http: HttpPool, prompt: str
) -> None:
    """Silence is given up after the time that was set, and the connection with it."""
    await aimock.answers(
        {
            "match": {"userMessage": prompt},
            "response": {"content": LONG},
            "streamingProfile": {"ttft": NEVER},
            "openRouterProcessing": True,  # a comment in the stream is no token
        }
    )
    model = subject.at(line.url, http, timeouts=Timeouts(first_token=0.5))
    error, events = await fails(model, question(prompt))
    assert (error.kind, error.is_retryable, events) == (ProviderErrorKind.NO_FIRST_TOKEN, True, [])
    await line.hung_up()


async def test_stall(aimock: Aimock, subject: Subject, http: HttpPool, prompt: str) -> None:
    """An answer that stops coming is cut after the time that was set."""
    await aimock.answers(
        {
            "match": {"userMessage": prompt},
            "response": {"content": LONG},
            "recordedTimings": {
                "ttftMs": 0,
                "interChunkDelaysMs": [0, 0, 0, 0, NEVER],
                "totalDurationMs": NEVER,
            },
        }
    )
    model = subject.at(aimock.url, http, timeouts=Timeouts(gap=0.5))
    error, events = await fails(model, question(prompt))
    assert (error.kind, error.is_retryable) == (ProviderErrorKind.INTERRUPTED, True)
    assert of(TextDelta, events)


async def test_cancel(
    aimock: Aimock, line: Line, subject: Subject, http: HttpPool, prompt: str
) -> None:
    """Cancelling the task that reads closes the connection, and the next call works."""
    await aimock.answers(trickle(prompt))
    model = subject.at(line.url, http)
    begun = asyncio.Event()

    async def read() -> None:
        async with model.stream(question(prompt)) as stream:
            async for event in stream:
                if isinstance(event, TextDelta):
                    begun.set()

    reading = asyncio.create_task(read())
    await begun.wait()
    await cancelled(reading)
    await line.hung_up()
    assert not finished(line)
    await works(model, aimock, prompt)


async def test_cancel_before_first_token(
    aimock: Aimock, line: Line, subject: Subject, http: HttpPool, prompt: str
) -> None:
    """Cancelling while a model is silent closes the connection, and the next call works."""
    await aimock.answers(trickle(prompt, ttft=NEVER))
    model = subject.at(line.url, http)
    asking = asyncio.create_task(ask(model, question(prompt)))
    await line.asked()
    await cancelled(asking)
    await line.hung_up()
    await works(model, aimock, prompt)


async def test_leave(
    aimock: Aimock, line: Line, subject: Subject, http: HttpPool, prompt: str
) -> None:
    """Leaving a stream in mid-answer closes the connection, and the next call works."""
    await aimock.answers(trickle(prompt))
    model = subject.at(line.url, http)
    async with model.stream(question(prompt)) as stream:
        async for event in stream:
            if isinstance(event, TextDelta):
                break
    await line.hung_up()
    assert not finished(line)
    await works(model, aimock, prompt)


def trickle(prompt: str, ttft: int = 0) -> dict[str, Any]:
    """An answer that takes many times as long as its reader stays."""
    return {
        "match": {"userMessage": prompt},
        "response": {"content": LONG},
        "streamingProfile": {"ttft": ttft, "tps": 20},
    }


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def finished(line: Line) -> bool:
    return b"[DONE]" in line.incoming or b"message_stop" in line.incoming


async def works(model: Model, aimock: Aimock, prompt: str) -> None:
    again = f"Again: {prompt[::-1]}"
    await aimock.answers({"match": {"userMessage": again}, "response": {"content": "Yes."}})
    assert end(await ask(model, question(again))).message.text == "Yes."
