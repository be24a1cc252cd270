"""A stream that is cut anywhere gives what came, and then an error; never a wrong answer."""

from __future__ import annotations

import asyncio
import json
from typing import Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dodona.core.errors import ProviderError, ProviderErrorKind
from dodona.core.messages import UserText
from dodona.core.ports.model import Done, ModelEvent, ModelRequest
from dodona.models.anthropic.request import AnthropicWire
from dodona.models.openai.request import OpenAiWire
from dodona.models.provider import ModelEndpoint
from dodona.models.providers import PROVIDERS
from dodona.models.sse import SseParser
from dodona.net.redactor import Redactor
from tests.models.wire_server import Reply, gather, named, sse, talking

GO = ModelRequest((UserText("go"),))


def delta(finish: str | None = None, **members: object) -> dict[str, object]:
    return {"choices": [{"delta": members, "finish_reason": finish}]}


OPENAI = sse(
    delta(reasoning_content="hm"),
    delta(content="Grüße\r\n"),
    delta(tool_calls=[{"index": 0, "id": "a", "function": {"name": "x", "arguments": '{"q"'}}]),
    delta(tool_calls=[{"index": 0, "function": {"arguments": ":1}"}}]),
    delta("tool_calls"),
    {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}},
    "[DONE]",
)
ANTHROPIC = named(
    {"type": "message_start", "message": {"usage": {"input_tokens": 5}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking"}},
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "thinking_delta", "thinking": "h"},
    },
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "signature_delta", "signature": "s"},
    },
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Grüße"}},
    {
        "type": "content_block_start",
        "index": 2,
        "content_block": {"type": "tool_use", "id": "a", "name": "x", "input": {}},
    },
    {
        "type": "content_block_delta",
        "index": 2,
        "delta": {"type": "input_json_delta", "partial_json": "{}"},
    },
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 2}},
    {"type": "message_stop"},
)
STREAMS = {"openai": OPENAI, "anthropic": ANTHROPIC}


def replay(provider: str, chunks: list[bytes]) -> tuple[list[ModelEvent], ProviderError | None]:
    """What these bytes say, without a network."""
    endpoint = ModelEndpoint(
        provider=PROVIDERS[provider], model="test-model", base_url="http://x", redactor=Redactor()
    )
    wire = AnthropicWire(endpoint) if provider == "anthropic" else OpenAiWire(endpoint)
    answer, parser = wire.new_decoder(), SseParser()
    try:
        for data in [data for chunk in chunks for data in parser.feed(chunk)]:
            answer.read_event(data)
        if not answer.is_finished:
            answer.end()
    except ProviderError as error:
        return list(answer.ready), error
    return list(answer.ready), None


WHOLE = {provider: replay(provider, [stream])[0] for provider, stream in STREAMS.items()}


def check(provider: str, events: list[ModelEvent], error: ProviderError | None) -> None:
    whole = WHOLE[provider]
    if error is None:
        assert events == whole
    else:
        assert error.kind is ProviderErrorKind.INTERRUPTED
        assert events == whole[: len(events)]
        assert len(events) < len(whole)


@pytest.mark.parametrize("provider", STREAMS)
def test_the_whole_streams_are_good(provider: str) -> None:
    """What the tests below compare with."""
    done = WHOLE[provider][-1]
    assert isinstance(done, Done)
    assert [call.name for call in done.message.calls] == ["x"]
    assert (done.usage.input_tokens, done.usage.output_tokens) == (5, 2)
    assert json.loads(done.message.raw.body if done.message.raw else b"")


@pytest.mark.parametrize("provider", STREAMS)
def test_every_cut_is_noticed(provider: str) -> None:
    """At each byte: the same events so far and an error, or all of them."""
    stream = STREAMS[provider]
    for place in range(len(stream)):
        check(provider, *replay(provider, [stream[:place]]))


@pytest.mark.parametrize("provider", STREAMS)
@given(data=st.data(), end=st.sampled_from(["well", "abort"]))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_cut_or_split_over_the_network_is_noticed(
    provider: str, data: st.DataObject, end: Literal["well", "abort"]
) -> None:
    """Any pieces, any cut, with the connection ended well or broken."""
    stream = STREAMS[provider]
    place = data.draw(st.integers(0, len(stream)) | st.just(len(stream)))
    cuts = sorted(data.draw(st.lists(st.integers(0, place), max_size=6)))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, place], strict=True)]
    reply = Reply([chunk for chunk in chunks if chunk], end=end)

    async def run() -> None:
        async with talking(provider, reply) as (model, _):
            check(provider, *await gather(model, GO))

    asyncio.run(run())


@pytest.mark.parametrize(
    "chunks",
    [
        [delta("stop", content="a"), "[DONE]"],
        [delta(content="a"), "[DONE]"],
        [{**delta("stop", content="a"), "usage": {"prompt_tokens": 1}}],
        [delta("stop", content="a"), {"choices": [], "usage": {"prompt_tokens": 1}}],
    ],
)
async def test_what_counts_as_an_end(chunks: list[object]) -> None:
    """`[DONE]`, or a finish and the usage; the last empty line may be missing."""
    async with talking("openai-compatible", Reply([sse(*chunks).rstrip()])) as (model, _):
        events, error = await gather(model, GO)
    assert error is None
    assert isinstance(events[-1], Done)


@pytest.mark.parametrize(
    "chunks",
    [
        [],
        ["[DONE]"],
        [delta(content="a")],
        [delta("stop", content="a")],
        [{**delta(content="a"), "usage": {"prompt_tokens": 1}}, delta("stop")],
    ],
)
async def test_what_does_not(chunks: list[object]) -> None:
    """Half an account is none; an end without a word is no answer."""
    async with talking("openai-compatible", Reply([sse(*chunks)])) as (model, _):
        _, error = await gather(model, GO)
    assert error is not None
    assert error.kind is ProviderErrorKind.INTERRUPTED
    assert error.message.startswith("openai-compatible interrupted the answer: ")
