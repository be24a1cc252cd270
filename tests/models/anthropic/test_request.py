"""The wire of Anthropic's messages."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from dodona.core.messages import (
    AssistantText,
    Message,
    RawMessage,
    SystemText,
    ToolCall,
    ToolResult,
    ToolSpec,
    UserText,
)
from dodona.core.ports.model import (
    CallDelta,
    Done,
    FinishReason,
    ModelEvent,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
    Usage,
)
from dodona.net.redactor import Redactor
from tests.models.wire_server import KEY, Reply, ask, gather, joined, named, talking

GO = ModelRequest((UserText("go"),))
SEARCH = ToolSpec("search", "Finds.", {"type": "object", "properties": {"q": {"type": "string"}}})
START = {
    "type": "message_start",
    "message": {
        "model": "claude-test",
        "content": [],
        "usage": {"input_tokens": 5, "output_tokens": 1},
    },
}
STOP = {"type": "message_stop"}


def block(index: int, begun: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": begun},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def text(index: int, *pieces: str) -> list[dict[str, Any]]:
    deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
    return block(index, {"type": "text", "text": ""}, *deltas)


def thinking(index: int, *pieces: str, signature: str = "c2lnbmF0dXJl") -> list[dict[str, Any]]:
    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
    signed = {"type": "signature_delta", "signature": signature}
    return block(index, {"type": "thinking", "thinking": "", "signature": ""}, *deltas, signed)


def use(index: int, id_: str, *pieces: str) -> list[dict[str, Any]]:
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return block(index, {"type": "tool_use", "id": id_, "name": "search", "input": {}}, *deltas)


def ended(reason: str, **usage: Any) -> list[dict[str, Any]]:
    usage = {"output_tokens": 9, **usage}
    return [{"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}, STOP]


def stream(*events: Any) -> Reply:
    flat = [event for part in events for event in (part if isinstance(part, list) else [part])]
    return Reply([named(START, *flat)])


STREAMS: dict[str, tuple[list[Any], list[ModelEvent], FinishReason]] = {
    "text": (
        [text(0, "Hel", "lo"), ended("end_turn")],
        [TextDelta("Hel"), TextDelta("lo")],
        FinishReason.STOP,
    ),
    "thinking": (
        [thinking(0, "h", "m"), text(1, "a"), ended("max_tokens")],
        [ThinkingDelta("h"), ThinkingDelta("m"), TextDelta("a")],
        FinishReason.LENGTH,
    ),
    "parallel calls": (
        [text(0, "a"), use(1, "t1", "", '{"q":', "1}"), use(2, "t2"), ended("tool_use")],
        [
            TextDelta("a"),
            CallDelta(0, "search", "", "t1"),
            CallDelta(0, "search", "", "t1"),
            CallDelta(0, "search", '{"q":', "t1"),
            CallDelta(0, "search", "1}", "t1"),
            CallDelta(1, "search", "", "t2"),
        ],
        FinishReason.TOOL_CALLS,
    ),
    "refusal": ([ended("refusal")], [], FinishReason.REFUSAL),
    "pings, unknown events and blocks": (
        [
            {"type": "ping"},
            {"type": "weather_report", "error": None},
            block(0, {"type": "riddle", "sphinx": 1}, {"type": "riddle_delta", "more": 2}),
            text(1, "a"),
            ended("pause_turn"),
        ],
        [TextDelta("a")],
        FinishReason.OTHER,
    ),
}


@pytest.mark.parametrize("name", STREAMS)
async def test_streams_become_events(name: str) -> None:
    """What comes together is one event, in order; the end holds the whole answer."""
    parts, expected, finish = STREAMS[name]
    async with talking("anthropic", stream(*parts)) as (model, _):
        events, error = await gather(model, GO)
    assert error is None
    assert events[:-1] == joined(expected)
    done = events[-1]
    assert isinstance(done, Done)
    assert (done.finish, done.provider, done.model) == (finish, "anthropic", "claude-test")
    texts = "".join(event.text for event in expected if isinstance(event, TextDelta))
    assert done.message.text == texts


async def test_calls_are_whole() -> None:
    """A call without arguments has an empty object; a missing or repeated id is replaced."""
    reply = stream(use(0, "t1", '{"q":1}'), use(1, "t1"), use(2, ""), ended("tool_use"))
    done = await ask("anthropic", reply, GO)
    calls = done.message.calls
    assert [call.arguments for call in calls] == ['{"q":1}', "{}", "{}"]
    assert calls[0].id == "t1"
    assert len({call.id for call in calls}) == 3
    assert done.message.raw is not None
    kept = json.loads(done.message.raw.body)
    assert [(each["id"], each["input"]) for each in kept] == [
        (calls[0].id, {"q": 1}),
        (calls[1].id, {}),
        (calls[2].id, {}),
    ]


async def test_usage_means_the_same_everywhere() -> None:
    """Input includes what was read from and written to the cache; later totals replace earlier."""
    usage = {
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "input_tokens": None,
        "output_tokens_details": {"thinking_tokens": 4},
    }
    done = await ask("anthropic", stream(text(0, "a"), ended("end_turn", **usage)), GO)
    wire = {**usage, "input_tokens": 5, "output_tokens": 9}
    assert done.usage == Usage(125, 9, 100, 20, 4, wire=wire)


async def test_an_answer_in_one_piece_is_taken() -> None:
    """Some servers ignore that a stream was asked for."""
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "Hi"},
        {"type": "tool_use", "id": "t", "name": "x", "input": {"q": 1}},
    ]
    body = {
        "type": "message",
        "content": content,
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3},
    }
    headers = {"Content-Type": "application/json"}
    done = await ask("anthropic", Reply([json.dumps(body).encode()], headers=headers), GO)
    assert (done.message.text, done.message.thinking) == ("Hi", "hm")
    assert done.message.calls == (ToolCall("t", "x", '{"q":1}'),)
    assert done.message.raw is not None
    assert json.loads(done.message.raw.body) == content


# -- requests --------------------------------------------------------------------------------


async def asked(*requests: ModelRequest, **more: Any) -> list[bytes]:
    """The bodies that reach a server."""
    async with talking("anthropic", stream(text(0, "a"), ended("end_turn")), **more) as (
        model,
        server,
    ):
        for request in requests:
            _, error = await gather(model, request)
            assert error is None
    return [each.body for each in server.asked]


async def sent(request: ModelRequest, **more: Any) -> Any:
    return json.loads((await asked(request, **more))[0])


def plain(value: Any) -> Any:
    """The same without markers."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items() if name != "cache_control"}
    return [plain(item) for item in value] if isinstance(value, list) else value


async def test_a_request_says_all_that_was_said() -> None:
    """Roles alternate, results come first, notices are the user's, nothing is empty."""
    messages: tuple[Message, ...] = (
        SystemText("Be kind."),
        SystemText(" "),
        UserText("Where?"),
        AssistantText("Looking.", (ToolCall("c:1", "a search", "[1]"),), thinking="hm"),
        SystemText("Two turns left."),
        ToolResult("c:1", "search", ""),
        ToolResult("c2", "search", "no such thing", failed=True),
        AssistantText("  "),
        UserText(""),
    )
    request = ModelRequest(messages, (SEARCH,), temperature=0.5)
    reply = stream(text(0, "a"), ended("end_turn"))
    async with talking("anthropic", reply) as (model, server):
        await gather(model, request)
    assert server.asked[0].path == "/v1/messages"
    assert server.asked[0].headers["x-api-key"] == KEY
    assert server.asked[0].headers["anthropic-version"] == "2023-06-01"
    called = {"type": "tool_use", "id": "c_1", "name": "a_search", "input": {}}
    assert plain(server.asked[0].json) == {
        "model": "test-model",
        "tools": [
            {"name": "search", "description": "Finds.", "input_schema": dict(SEARCH.parameters)}
        ],
        "system": [{"type": "text", "text": "Be kind."}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Where?"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "Looking."}, called]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c_1", "content": "(empty)"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "c2",
                        "is_error": True,
                        "content": "no such thing",
                    },
                    {"type": "text", "text": "[System notice] Two turns left."},
                    {"type": "text", "text": "(empty)"},
                ],
            },
        ],
        "stream": True,
        "max_tokens": 4096,
        "temperature": 0.5,
    }


ADAPTIVE = {"thinking": {"type": "adaptive", "display": "summarized"}}
SETTINGS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("claude-sonnet-4-5", {}, {"max_tokens": 4096}),
    (
        "claude-sonnet-4-5",
        {"temperature": 0.5, "max_tokens": 9},
        {"max_tokens": 9, "temperature": 0.5},
    ),
    (
        "claude-haiku-4-5-20251001:thinking",
        {"temperature": 0.5},
        {"max_tokens": 16384, "thinking": {"type": "enabled", "budget_tokens": 8192}},
    ),
    (
        "claude-opus-4-1",
        {"thinking": True, "max_tokens": 1500},
        {"max_tokens": 1500, "thinking": {"type": "enabled", "budget_tokens": 1024}},
    ),
    ("claude-opus-4-1", {"thinking": True, "max_tokens": 1024}, {"max_tokens": 1024}),
    ("claude-opus-4-6", {"temperature": 0.5}, {"max_tokens": 4096, "temperature": 0.5}),
    ("claude-opus-4-6", {"thinking": True, "max_tokens": 99}, {"max_tokens": 99, **ADAPTIVE}),
    ("claude-opus-4-7", {"temperature": 0.5}, {"max_tokens": 4096}),
    ("claude-sonnet-5-5:thinking", {}, {"max_tokens": 16384, **ADAPTIVE}),
    ("claude-3-5-haiku-latest", {"thinking": True}, {"max_tokens": 4096}),
    ("kimi-k3", {"thinking": True}, {"max_tokens": 4096}),
    (
        "kimi-k3",
        {"thinking": True, "is_thinking_requested": True, "max_tokens": 4000},
        {"max_tokens": 4000, "thinking": {"type": "enabled", "budget_tokens": 2000}},
    ),
    (
        "kimi-k3:thinking",
        {"max_tokens": 4000},
        {"max_tokens": 4000, "thinking": {"type": "enabled", "budget_tokens": 2000}},
    ),
]


@pytest.mark.parametrize(("model", "given", "expected"), SETTINGS)
async def test_settings_are_said_in_the_models_words(
    model: str, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    """A budget for older models, their own judgement for later ones; no refused temperature."""
    body = await sent(ModelRequest((UserText("go"),), **given), model=model)
    assert body.pop("model") == model.removesuffix(":thinking")
    for name in ("messages", "stream"):
        body.pop(name)
    assert body == expected


async def test_an_answer_goes_back_as_it_came() -> None:
    """Byte for byte, with signatures and what was redacted; without the empty text it sent."""
    redacted = {"type": "redacted_thinking", "data": "b3BhcXVl"}
    parts = [
        thinking(0, "hm ", 'ü "x"'),
        block(1, redacted),
        text(2, ""),
        use(3, "t1", '{"q": "ä",  "n": 1.0}'),
        ended("tool_use"),
    ]
    done = await ask("anthropic", stream(*parts), GO)
    raw = done.message.raw
    assert raw is not None
    assert json.loads(raw.body) == [
        {"type": "thinking", "thinking": 'hm ü "x"', "signature": "c2lnbmF0dXJl"},
        redacted,
        {"type": "tool_use", "id": "t1", "name": "search", "input": {"q": "ä", "n": 1.0}},
    ]
    assert '"input":{"q": "ä",  "n": 1.0}'.encode() in raw.body
    restored = AssistantText(calls=done.message.calls, raw=RawMessage("anthropic", raw.body))
    first = ModelRequest((UserText("go"), restored, ToolResult("t1", "search", "r")), thinking=True)
    then = ModelRequest((*first.messages, AssistantText("a"), UserText("more")), thinking=True)
    for body in await asked(first, then, model="claude-sonnet-4-5"):
        assert b'{"role":"assistant","content":' + raw.body + b"}" in body
        assert b'"thinking":{"type":"enabled"' in body


@pytest.mark.parametrize("raw", [None, RawMessage("openai", b'{"role":"assistant"}')])
async def test_another_providers_answer_is_rebuilt(raw: RawMessage | None) -> None:
    """Without thinking; and none is asked for until the next question."""
    foreign = AssistantText("t", (ToolCall("a", "search", '{"q":1}'),), thinking="hm", raw=raw)
    loop = (UserText("go"), foreign, ToolResult("a", "search", "r"))
    body = await sent(ModelRequest(loop, thinking=True), model="oak:thinking")
    assert plain(body["messages"][1]["content"]) == [
        {"type": "text", "text": "t"},
        {"type": "tool_use", "id": "a", "name": "search", "input": {"q": 1}},
    ]
    assert "thinking" not in body
    later = (*loop, AssistantText("done"), UserText("more"))
    assert "thinking" in await sent(ModelRequest(later, thinking=True), model="oak:thinking")


async def test_arguments_that_are_no_object_can_still_be_sent() -> None:
    """A model that writes broken JSON does not break the conversation."""
    reply = stream(use(0, "t1", '{"q": '), ended("max_tokens"))
    done = await ask("anthropic", reply, GO)
    assert done.message.calls == (ToolCall("t1", "search", '{"q": '),)
    request = ModelRequest((UserText("go"), done.message, ToolResult("t1", "search", "broken")))
    body = await sent(request)
    assert body["messages"][1]["content"][0]["input"] == {}


@pytest.mark.parametrize("prompt", [(SystemText("s"), SystemText("s2")), ()])
async def test_markers_are_few_and_at_ends(prompt: tuple[Message, ...]) -> None:
    """Of the prompt (or the tools), of what later runs share, and of the request."""
    messages = (*prompt, UserText("old"), AssistantText("a"), UserText("q"))
    body = await sent(ModelRequest(messages, (SEARCH, SEARCH)))
    blocks = [*body["tools"], *body.get("system", ())]
    blocks += [each for message in body["messages"] for each in message["content"]]
    places = [n for n, each in enumerate(blocks) if "cache_control" in each]
    assert places == ([3, 5, 6] if prompt else [1, 3, 4])


async def test_an_answer_that_ends_in_thinking_is_rebuilt() -> None:
    """The API takes neither thinking as the last block, nor an answer without any."""
    for parts, sent_back in (
        ((thinking(0, "hm"),), []),
        ((text(0, "a"), thinking(1, "hm")), ["a"]),
    ):
        done = await ask("anthropic", stream(*parts, ended("max_tokens")), GO)
        assert done.message.thinking == "hm"
        body = await sent(ModelRequest((UserText("old"), done.message, UserText("q"))))
        said = [each["text"] for message in body["messages"] for each in message["content"]]
        assert said == ["old", *sent_back, "q"]


async def test_successive_requests_share_their_beginning() -> None:
    """What was sent once is sent again byte for byte, up to the marker at its end."""
    messages: list[Message] = [SystemText("s"), UserText("old"), AssistantText("a"), UserText("q")]
    requests = [ModelRequest(tuple(messages), (SEARCH,))]
    for n in range(3):
        messages += [
            AssistantText("", (ToolCall(f"c{n}", "search"),)),
            ToolResult(f"c{n}", "search", "r"),
        ]
        requests.append(ModelRequest(tuple(messages), (SEARCH,)))
    bodies = await asked(*requests)
    for body, longer in pairwise(bodies):
        assert longer.startswith(body[: body.rindex(b',"cache_control"')])


async def test_known_secrets_reach_no_model() -> None:
    """Not in messages, calls, results or tools, and not in an answer that goes back."""
    redactor = Redactor()
    redactor.add("THE_KEY", "hunter2-hunter2")
    leaky = 'say hunter2-hunter2 "twice"'
    leaked = RawMessage("anthropic", b'[{"type":"text","text":"hunter2-hunter2"}]')
    messages = (
        SystemText(leaky),
        UserText(leaky),
        AssistantText(leaky, (ToolCall("a", "x", json.dumps({"q": leaky})),)),
        ToolResult("a", "x", leaky),
        SystemText(leaky),
        AssistantText("hunter2-hunter2", raw=leaked),
        UserText("q"),
    )
    tool = ToolSpec("x", leaky, {"type": "object", "properties": {"q": {"enum": [leaky]}}})
    [body] = await asked(ModelRequest(messages, (tool,)), redactor=redactor)
    assert b"hunter2" not in body
    assert body.count(b"[secret THE_KEY]") == 9
    json.loads(body)
