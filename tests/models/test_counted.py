"""What a model says is counted when its provider does not say, and ended when it does not stop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dodona.core.errors import ProviderError
from dodona.core.messages import UserText
from dodona.core.ports.model import (
    Done,
    FinishReason,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
    Usage,
)
from dodona.models.counted import CountedModel
from dodona.models.token_counter import OfflineTokenCounter
from tests.agent.wire import says
from tests.models.wire_server import Reply, sse, talking

COUNTER = OfflineTokenCounter()
MODEL = "gpt-4o"  # its vocabulary is public
SENTENCE = "The oak of Dodona spoke through its leaves. "
REQUEST = ModelRequest((UserText("What did it say?"),), max_tokens=1000)


def piece(finish: str | None = None, /, **members: Any) -> bytes:
    return sse({"choices": [{"index": 0, "delta": members, "finish_reason": finish}]})


def silent(*pieces: bytes) -> Reply:
    """A provider that gives no account."""
    return Reply([*pieces, piece("stop"), sse("[DONE]")])


def call(arguments: str, index: int = 0) -> bytes:
    function = {"name": "search", "arguments": arguments}
    return piece(tool_calls=[{"index": index, "id": f"call-{index}", "function": function}])


async def done(reply: Reply) -> Done:
    async with (
        talking("openai-compatible", reply, model=MODEL) as (model, _),
        CountedModel(model, COUNTER).stream(REQUEST) as stream,
    ):
        *_, last = [event async for event in stream]
    assert isinstance(last, Done)
    return last


async def test_a_providers_account_is_taken_as_it_is() -> None:
    """Whatever we would have counted."""
    assert (await done(says(SENTENCE, usage=(7, 4321)))).usage == Usage(
        7, 4321, wire={"prompt_tokens": 7, "completion_tokens": 4321}
    )


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        ([piece(content=SENTENCE), piece(content=SENTENCE)], SENTENCE * 2),
        ([piece(reasoning_content=SENTENCE), piece(content="Yes.")], SENTENCE + "Yes."),
        ([call('{"query": '), call('"oak"}')], 'search{"query": "oak"}'),
        ([call("{}"), call("{}", 1)], "search{}search{}"),
    ],
    ids=["text", "thinking", "call", "calls"],
)
async def test_without_an_account_what_came_is_counted(pieces: list[bytes], said: str) -> None:
    """Text, thinking and calls; the account says that it is an estimate."""
    usage = (await done(silent(*pieces))).usage
    assert usage.estimated
    assert usage.output_tokens == COUNTER.count(said, MODEL)
    assert usage.input_tokens == 0  # whoever sent it knows


async def test_half_an_account_is_completed() -> None:
    """Servers that count what they read, but not what they write."""
    used = sse({"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 0}}, "[DONE]")
    usage = (await done(Reply([piece(content=SENTENCE), piece("stop"), used]))).usage
    assert (usage.input_tokens, usage.estimated) == (12, True)
    assert usage.output_tokens == COUNTER.count(SENTENCE, MODEL)


async def test_an_answer_that_breaks_has_used_what_came() -> None:
    broken = Reply([piece(content=SENTENCE)], end="abort")
    async with (
        talking("openai-compatible", broken, model=MODEL) as (model, _),
        CountedModel(model, COUNTER).stream(REQUEST) as stream,
    ):
        with pytest.raises(ProviderError):
            _ = [event async for event in stream]
        assert stream.usage == Usage(0, COUNTER.count(SENTENCE, MODEL), estimated=True)


class Endless:
    """Pieces that never end."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = pieces
        self.sent = 0

    def __iter__(self) -> Iterator[bytes]:
        while True:
            for each in self.pieces:
                self.sent += 1
                yield each


@pytest.mark.parametrize(
    "pieces",
    [
        [piece(content=SENTENCE)],
        [piece(reasoning_content=SENTENCE)],
        [piece(content="神諭の樫の木" * 5)],
        [call('{"query": "'), call("oak " * 20)],
        [call("{}", number) for number in range(20_000)],
    ],
    ids=["text", "thinking", "wide", "call", "calls"],
)
async def test_an_answer_that_does_not_stop_is_closed(pieces: list[bytes]) -> None:
    """With what came at once when it passed: it ends like one that met it, the line is cut."""
    endless = Endless(*pieces)
    reply = Reply(endless)  # type: ignore[arg-type]
    async with talking("openai-compatible", reply, model=MODEL) as (model, server):
        async with CountedModel(model, COUNTER).stream(REQUEST) as stream:
            events = [event async for event in stream]
        await server.left.wait()
    last = events[-1]
    assert isinstance(last, Done)
    assert (last.finish, last.message.calls) == (FinishReason.LENGTH, ())
    assert last.usage.output_tokens > 2000
    assert endless.sent < 50_000
    assert last.usage.estimated
    deltas = [each for each in events if isinstance(each, TextDelta | ThinkingDelta)]
    assert last.message.text + last.message.thinking == "".join(each.text for each in deltas)


async def test_an_answer_up_to_its_limit_is_left_alone() -> None:
    """Also when we count nearly twice as much as the provider did."""
    text = SENTENCE * 190
    assert 1800 < COUNTER.count(text, MODEL) < 2000
    found = await done(silent(*(piece(content=SENTENCE) for _ in range(190))))
    assert found.message.text == text
    assert found.finish is FinishReason.STOP


@pytest.mark.parametrize("usage", [(9, 990), (0, 0)], ids=["with usage", "without"])
async def test_an_answer_that_was_received_is_kept(usage: tuple[int, int]) -> None:
    """Whatever we count: it has ended, and the provider's account decides what it costs."""
    text = "神諭の樫の木は葉のさざめきで答えた。" * 300
    assert COUNTER.count(text, MODEL) > 2000
    found = await done(says(text, usage=usage))
    assert (found.message.text, found.finish) == (text, FinishReason.STOP)
    assert found.usage.output_tokens == (usage[1] or COUNTER.count(text, MODEL))


async def test_few_texts_are_counted() -> None:
    """Of an answer with an account that stays far below its limit, nothing is."""

    class Counting:
        times = 0

        def count(self, text: str, model: str) -> int:
            self.times += 1
            return COUNTER.count(text, model)

    counting = Counting()
    reply = says(*[SENTENCE] * 20)
    async with (
        talking("openai-compatible", reply, model=MODEL) as (model, _),
        CountedModel(model, counting).stream(REQUEST) as stream,
    ):
        events = [event async for event in stream]
    assert isinstance(events[-1], Done)
    assert counting.times == 0
