"""The wire of OpenAI's chat completions, and what other providers make of it."""

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
from tests.models.wire_server import KEY, Reply, ask, gather, joined, sse, talking

GO = ModelRequest((UserText("go"),))
SEARCH = ToolSpec("search", "Finds.", {"type": "object", "properties": {"q": {"type": "string"}}})
JSON = {"Content-Type": "application/json; charset=utf-8"}


def delta(finish: str | None = None, /, **members: Any) -> dict[str, Any]:
    return {"model": "test-1", "choices": [{"index": 0, "delta": members, "finish_reason": finish}]}


def call(**members: Any) -> dict[str, Any]:
    """A piece of a call; `name` and `arguments` belong to its function."""
    function = {key: members.pop(key) for key in ("name", "arguments") if key in members}
    return delta(tool_calls=[{**members, "function": function}])


def used(**members: Any) -> dict[str, Any]:
    return {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2, **members}}


def calls_of(done: Done) -> list[tuple[str, str]]:
    return [(call.name, call.arguments) for call in done.message.calls]


STREAMS: dict[str, tuple[list[object], list[ModelEvent], FinishReason]] = {
    "text": (
        [
            delta(role="assistant", content=""),
            delta(content="Hel"),
            delta(content="lo"),
            delta("stop"),
        ],
        [TextDelta("Hel"), TextDelta("lo")],
        FinishReason.STOP,
    ),
    "reasoning_content": (
        [delta(reasoning_content="hm", content=None), delta(content="a"), delta("stop")],
        [ThinkingDelta("hm"), TextDelta("a")],
        FinishReason.STOP,
    ),
    "reasoning, twice the same": (
        [delta(reasoning="hm", reasoning_content="hm"), delta("length", content="a")],
        [ThinkingDelta("hm"), TextDelta("a")],
        FinishReason.LENGTH,
    ),
    "reasoning_details alone": (
        [delta(reasoning_details=[{"type": "reasoning.text", "text": "hm"}]), delta("stop")],
        [ThinkingDelta("hm")],
        FinishReason.STOP,
    ),
    "filtered": (
        [delta(content="a"), delta("content_filter")],
        [TextDelta("a")],
        FinishReason.REFUSAL,
    ),
    "declined": ([delta(refusal="No."), delta("stop")], [TextDelta("No.")], FinishReason.REFUSAL),
    "unknown finish": ([delta(content="a"), delta("eos")], [TextDelta("a")], FinishReason.OTHER),
    "parallel calls": (
        [
            call(index=0, id="a", name="x", arguments=""),
            call(index=1, id="b", name="y", arguments=""),
            call(index=0, arguments='{"q"'),
            call(index=1, arguments="{}"),
            call(index=0, arguments=":1}"),
            delta("tool_calls"),
        ],
        [
            CallDelta(0, "x", "", "a"),
            CallDelta(1, "y", "", "b"),
            CallDelta(0, "x", '{"q"', "a"),
            CallDelta(1, "y", "{}", "b"),
            CallDelta(0, "x", ":1}", "a"),
        ],
        FinishReason.TOOL_CALLS,
    ),
    "calls with a plain stop": (
        [call(index=0, id="a", name="x", arguments="{}"), delta("stop")],
        [CallDelta(0, "x", "{}", "a")],
        FinishReason.TOOL_CALLS,
    ),
    "Gemini's thoughts": (
        [
            delta(content="<thought>h", extra_content={"google": {"thought": True}}),
            delta(content="m", extra_content={"google": {"thought": True}}),
            delta(content="</thought>a"),
            delta("stop", content="b"),
        ],
        [ThinkingDelta("h"), ThinkingDelta("m"), TextDelta("a"), TextDelta("b")],
        FinishReason.STOP,
    ),
    "comments, nulls and no choices": (
        [{"choices": None}, delta(content=None, tool_calls=None), delta("stop", content="a")],
        [TextDelta("a")],
        FinishReason.STOP,
    ),
}


@pytest.mark.parametrize("name", STREAMS)
async def test_streams_become_events(name: str) -> None:
    """What comes together is one event, in order; the end holds the whole answer."""
    chunks, expected, finish = STREAMS[name]
    reply = Reply([b": hello\n\n", sse(*chunks, used(), "[DONE]")])
    async with talking("openai", reply) as (model, _):
        events, error = await gather(model, GO)
    assert error is None
    assert events[:-1] == joined(expected)
    done = events[-1]
    assert isinstance(done, Done)
    assert (done.finish, done.provider, done.model) == (finish, "openai", "test-1")
    texts = "".join(event.text for event in expected if isinstance(event, TextDelta))
    assert done.message.text == texts
    assert (done.usage.input_tokens, done.usage.output_tokens) == (5, 2)


CALLS: dict[str, tuple[list[object], list[tuple[str, str]]]] = {
    "whole, number 0 for all, with ids": (
        [
            call(index=0, id="a", name="x", arguments='{"q":1}'),
            call(index=0, id="b", name="x", arguments='{"q":2}'),
        ],
        [("x", '{"q":1}'), ("x", '{"q":2}')],
    ),
    "whole, number 0 for all, no ids": (
        [
            call(index=0, name="x", arguments='{"q":1}'),
            call(index=0, name="x", arguments='{"q":2}'),
        ],
        [("x", '{"q":1}'), ("x", '{"q":2}')],
    ),
    "no number": (
        [call(id="a", name="x", arguments="{}"), call(id="b", name="x", arguments="{}")],
        [("x", "{}"), ("x", "{}")],
    ),
    "neither number nor id": (
        [call(name="x", arguments="{}"), call(name="y", arguments="{}")],
        [("x", "{}"), ("y", "{}")],
    ),
    "a name in every piece": (
        [call(index=0, name="x", arguments='{"q'), call(index=0, name="x", arguments='":{}}')],
        [("x", '{"q":{}}')],
    ),
    "another id in every piece": (
        [call(index=0, id="a", name="x", arguments="{"), call(index=0, id="b", arguments="}")],
        [("x", "{}")],
    ),
    "arguments as an object": ([call(index=0, name="x", arguments={"q": 1})], [("x", '{"q":1}')]),
    "no arguments": ([call(index=0, id="a", name="x")], [("x", "{}")]),
    "pieces without a number": (
        [call(id="a", name="x", arguments='{"q":'), call(arguments="1}")],
        [("x", '{"q":1}')],
    ),
}


@pytest.mark.parametrize("name", CALLS)
async def test_calls_are_put_together(name: str) -> None:
    """Whatever a server leaves out, the calls are whole, and each has an id of its own."""
    pieces, expected = CALLS[name]
    done = await ask("openai-compatible", Reply([sse(*pieces, delta("tool_calls"), "[DONE]")]), GO)
    assert calls_of(done) == expected
    ids = [call.id for call in done.message.calls]
    assert all(ids)
    assert len(set(ids)) == len(ids)


async def test_two_calls_never_share_an_id() -> None:
    """A model that gives two calls the same id would get one result for both."""
    pieces = [call(index=n, id="same", name="x", arguments="{}") for n in range(2)]
    done = await ask("openai", Reply([sse(*pieces, delta("tool_calls"), "[DONE]")]), GO)
    first, second = done.message.calls
    assert first.id == "same"
    assert second.id.startswith("call_")
    assert done.message.raw is not None
    assert [call["id"] for call in json.loads(done.message.raw.body)["tool_calls"]] == [
        first.id,
        second.id,
    ]


USAGES: list[tuple[str, dict[str, Any], Usage]] = [
    (
        "openai",
        {
            "prompt_tokens": 100,
            "completion_tokens": 50,
            "total_tokens": 150,
            "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
            "completion_tokens_details": {"reasoning_tokens": 20},
        },
        Usage(100, 50, 60, 10, 20),
    ),
    (
        "deepseek",
        {"prompt_tokens": 9, "completion_tokens": 1, "prompt_cache_hit_tokens": 4},
        Usage(9, 1, 4),
    ),
    (
        "openrouter",
        {"prompt_tokens": 9, "completion_tokens": 1, "cost": 0.25},
        Usage(9, 1, cost_usd=0.25),
    ),
    (
        "gemini",
        {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 40},
        Usage(10, 30, reasoning_tokens=25),
    ),
    ("ollama", {"prompt_tokens": None, "completion_tokens": -3, "cost": "?"}, Usage()),
    # What no call can use is a lie, and must not fill the books.
    ("openai", {"prompt_tokens": 10**15, "completion_tokens": True}, Usage(10**9, 0)),
    ("openrouter", {"prompt_tokens": 1, "completion_tokens": 1, "cost": 1e308}, Usage(1, 1)),
    ("openrouter", {"prompt_tokens": 1, "completion_tokens": 1, "cost": -1}, Usage(1, 1)),
]


@pytest.mark.parametrize(("provider", "wire", "expected"), USAGES)
async def test_usage_means_the_same_everywhere(
    provider: str, wire: dict[str, Any], expected: Usage
) -> None:
    """The provider's own account is kept as it came."""
    reply = Reply([sse(delta("stop", content="a"), {"choices": [], "usage": wire}, "[DONE]")])
    usage = (await ask(provider, reply, GO)).usage
    assert usage.wire == wire
    assert usage == Usage(**{**{f: getattr(expected, f) for f in Usage.__slots__}, "wire": wire})


async def test_an_answer_in_one_piece_is_taken() -> None:
    """Some servers ignore that a stream was asked for."""
    message = {
        "role": "assistant",
        "content": "Hi",
        "reasoning_content": "hm",
        "tool_calls": [{"id": "a", "function": {"name": "x", "arguments": "{}"}}],
    }
    body = {
        "choices": [{"message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 3},
    }
    done = await ask("openai", Reply([json.dumps(body).encode()], headers=JSON), GO)
    assert (done.message.text, done.message.thinking, done.finish) == (
        "Hi",
        "hm",
        FinishReason.TOOL_CALLS,
    )
    assert calls_of(done) == [("x", "{}")]
    assert done.usage.input_tokens == 3


# -- requests --------------------------------------------------------------------------------


async def asked(provider: str, *requests: ModelRequest, **more: Any) -> list[bytes]:
    """The bodies that reach a server."""
    reply = Reply([sse(delta("stop", content="a"), used(), "[DONE]")])
    async with talking(provider, reply, **more) as (model, server):
        for request in requests:
            _, error = await gather(model, request)
            assert error is None
    return [each.body for each in server.asked]


async def sent(provider: str, request: ModelRequest, **more: Any) -> Any:
    return json.loads((await asked(provider, request, **more))[0])


async def test_a_request_says_all_that_was_said() -> None:
    """Messages in order, tools, settings; the key is in a header."""
    messages: tuple[Message, ...] = (
        SystemText("Be kind."),
        UserText("Where?"),
        AssistantText("Looking.", (ToolCall("c1", "search", '{"q":"x"}'),), thinking="hm"),
        ToolResult("c1", "search", "here"),
        ToolResult("c2", "search", "no such thing", failed=True),
        SystemText("Two turns left."),
        UserText(""),
    )
    request = ModelRequest(messages, (SEARCH,), max_tokens=99, temperature=0.5, cache_key="run-7")
    reply = Reply([sse(delta("stop", content="a"), used(), "[DONE]")])
    async with talking("openai", reply) as (model, server):
        await gather(model, request)
    assert server.asked[0].path == "/chat/completions"
    assert server.asked[0].headers["Authorization"] == f"Bearer {KEY}"
    function = {"name": "search", "description": "Finds.", "parameters": dict(SEARCH.parameters)}
    made = {"name": "search", "arguments": '{"q":"x"}'}
    assert server.asked[0].json == {
        "model": "test-model",
        "tools": [{"type": "function", "function": function}],
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "Where?"},
            {
                "role": "assistant",
                "content": "Looking.",
                "tool_calls": [{"id": "c1", "type": "function", "function": made}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "here"},
            {"role": "tool", "tool_call_id": "c2", "content": "Error: no such thing"},
            {"role": "system", "content": "Two turns left."},
            {"role": "user", "content": "(empty)"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_completion_tokens": 99,
        "temperature": 0.5,
        "prompt_cache_key": "run-7",
    }


REQUESTED = {"thinking": True, "is_thinking_requested": True}
SETTINGS: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("openai", "o4-mini", {"temperature": 1.0}, {}),
    ("openai", "o4-mini:thinking", {}, {"reasoning_effort": "medium"}),
    ("openai", "gpt-6-sol", {"thinking": True}, {"reasoning_effort": "medium"}),
    # With tools, OpenAI's newer models take this wire only when they do not reason.
    ("openai", "gpt-6-sol", {"thinking": True, "tools": (SEARCH,)}, {"reasoning_effort": "none"}),
    ("openai", "gpt-5.4-mini", {"tools": (SEARCH,)}, {"reasoning_effort": "none"}),
    ("openai", "gpt-4.1", {"tools": (SEARCH,), "temperature": 0.5}, {"temperature": 0.5}),
    ("openai", "gpt-4.1", {"thinking": True}, {}),
    ("openai", "gpt-4.1:thinking", {}, {"reasoning_effort": "medium"}),
    ("openai", "gpt-4.1", REQUESTED, {"reasoning_effort": "medium"}),
    ("openai", "gpt-5-chat-latest", {"thinking": True}, {}),
    (
        "openrouter",
        "anthropic/claude-sonnet-4.5",
        {"thinking": True, "max_tokens": 9},
        {"reasoning": {"enabled": True}, "max_tokens": 9},
    ),
    ("openrouter", "x/y", {"thinking": True}, {}),
    ("openrouter", "x/y:thinking", {}, {"reasoning": {"enabled": True}}),
    ("deepseek", "deepseek-chat", {"thinking": True}, {"thinking": {"type": "enabled"}}),
    ("deepseek", "deepseek-chat", {"cache_key": "k"}, {"thinking": {"type": "disabled"}}),
    ("deepseek", "d", {"thinking": True}, {}),
    ("gemini", "gemini-2.0-flash", {"thinking": True}, {}),
    (
        "gemini",
        "g:thinking",
        {"temperature": 0.5},
        {
            "temperature": 0.5,
            "extra_body": {"google": {"thinking_config": {"include_thoughts": True}}},
        },
    ),
    ("ollama", "qwen3:8b", {"thinking": True}, {"reasoning_effort": "medium"}),
    ("ollama", "qwen3:30b-instruct", {"thinking": True}, {}),
    ("ollama", "llama3.2", {"thinking": True}, {}),
    ("openai-compatible", "oak", {"thinking": True}, {}),
    ("openai-compatible", "oak", REQUESTED, {"reasoning_effort": "medium"}),
    ("openai-compatible", "oak", {"is_thinking_requested": True}, {}),
]


@pytest.mark.parametrize(("provider", "model", "given", "expected"), SETTINGS)
async def test_settings_are_said_in_the_providers_words(
    provider: str, model: str, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    """`:thinking` is taken off the name; what a provider would refuse is not sent.

    By default, only models of the catalogue are asked to think; a client and `:thinking` ask any.
    """
    body = await sent(provider, ModelRequest((UserText("go"),), **given), model=model)
    assert body.pop("model") == model.removesuffix(":thinking")
    for name in ("messages", "tools", "stream", "stream_options"):
        body.pop(name, None)
    assert body == expected


RAW_STREAMS: dict[str, tuple[list[object], dict[str, Any]]] = {
    "gemini": (
        [
            call(
                id="a",
                name="x",
                arguments="{}",
                extra_content={"google": {"thought_signature": "s1=="}},
            ),
            call(id="b", name="x", arguments="{}"),
        ],
        {"extra_content": {"google": {"thought_signature": "s1=="}}},
    ),
    "openrouter": (
        [
            delta(
                reasoning="h",
                reasoning_details=[{"type": "reasoning.text", "text": "h", "index": 0}],
            ),
            delta(
                reasoning="m",
                reasoning_details=[{"type": "reasoning.text", "text": "m", "index": 0}],
            ),
            delta(reasoning_details=[{"type": "reasoning.text", "signature": "s", "index": 0}]),
            delta(reasoning_details=[{"type": "reasoning.encrypted", "data": "e", "index": 1}]),
            call(index=0, id="a", name="x", arguments="{}"),
        ],
        {
            "reasoning_details": [
                {"type": "reasoning.text", "text": "hm", "index": 0, "signature": "s"},
                {"type": "reasoning.encrypted", "data": "e", "index": 1},
            ]
        },
    ),
    "deepseek": (
        [delta(reasoning_content="hm"), call(index=0, id="a", name="x", arguments="{}")],
        {"reasoning_content": "hm"},
    ),
}


@pytest.mark.parametrize("provider", RAW_STREAMS)
async def test_an_answer_goes_back_as_it_came(provider: str) -> None:
    """Byte for byte in every later request; what was signed keeps its signature."""
    chunks, kept = RAW_STREAMS[provider]
    done = await ask(provider, Reply([sse(*chunks, delta("tool_calls"), "[DONE]")]), GO)
    raw = done.message.raw
    assert raw is not None
    assert raw.provider == provider
    message = json.loads(raw.body)
    assert {**message, **message["tool_calls"][0]}.items() >= kept.items()
    restored = AssistantText(
        done.message.text, done.message.calls, raw=RawMessage(provider, raw.body)
    )
    results = [ToolResult(call.id, call.name, "r") for call in restored.calls]
    first = ModelRequest((UserText("go"), restored, *results), thinking=True)
    then = ModelRequest((*first.messages, UserText("more")), thinking=True)
    for body in await asked(provider, first, then, model="oak:thinking"):
        assert b"," + raw.body + b"," in body
        assert b"enable" in body or b"include_thoughts" in body


@pytest.mark.parametrize("provider", ["gemini", "openrouter", "deepseek", "openai"])
async def test_another_providers_answer_is_rebuilt(provider: str) -> None:
    """Text and calls go over, thinking does not; and nobody is asked to think on from there."""
    body = b'{"role":"assistant","content":null,"secret_thing":1}'
    foreign = AssistantText(
        "t",
        (ToolCall("a", "bad name", "{broken"),),
        thinking="hm",
        raw=RawMessage("elsewhere", body),
    )
    request = ModelRequest((UserText("go"), foreign, ToolResult("a", "x", "r")), thinking=True)
    rebuilt = await sent(provider, request, model="oak:thinking")
    message = rebuilt["messages"][1]
    assert message["content"] == "t"
    [made] = message["tool_calls"]
    assert made.pop("function") == {"name": "bad_name", "arguments": "{}"}
    signed = {"google": {"thought_signature": "skip_thought_signature_validator"}}
    expected = {"id": "a", "type": "function"}
    assert made == ({**expected, "extra_content": signed} if provider == "gemini" else expected)
    assert "hm" not in json.dumps(rebuilt)
    assert rebuilt.get("thinking") in (None, {"type": "disabled"})
    assert not {"reasoning", "reasoning_effort", "extra_body"} & set(rebuilt)


async def test_thinking_returns_with_the_next_question() -> None:
    """Foreign calls before the question do not matter, but where every call needs thinking."""
    foreign = AssistantText("", (ToolCall("a", "x"),))
    messages = (UserText("go"), foreign, ToolResult("a", "x", "r"), UserText("more"))
    request = ModelRequest(messages, thinking=True)
    assert "reasoning" in await sent("openrouter", request, model="oak:thinking")
    body = await sent("deepseek", request, model="oak:thinking")
    assert body["thinking"] == {"type": "disabled"}


@pytest.mark.parametrize("model", ["anthropic/claude", "openai/gpt"])
async def test_successive_requests_share_their_beginning(model: str) -> None:
    """What was sent once is sent again byte for byte, up to the marker at its end."""
    messages: list[Message] = [SystemText("s"), UserText("old"), AssistantText("a"), UserText("q")]
    requests = [ModelRequest(tuple(messages), (SEARCH,))]
    for n in range(3):
        messages += [
            AssistantText("", (ToolCall(f"c{n}", "search"),)),
            ToolResult(f"c{n}", "search", "r"),
        ]
        requests.append(ModelRequest(tuple(messages), (SEARCH,)))
    bodies = await asked("openrouter", *requests, model=model)
    for body, longer in pairwise(bodies):
        end = body.index(b'],"stream"')
        if model.startswith("anthropic/"):
            end = body.rindex(b',"cache_control"')
        assert longer.startswith(body[:end])


async def test_markers_are_set_for_anthropic_behind_openrouter() -> None:
    """At the ends of the prompt, of what later runs share, and of the request."""
    messages = (SystemText("s"), UserText("old"), AssistantText("a"), UserText("q"))
    body = await sent("openrouter", ModelRequest(messages), model="anthropic/claude")
    parts = [m["content"][0] for m in body["messages"] if m["role"] != "assistant"]
    assert [part["text"] for part in parts if "cache_control" in part] == ["s", "old", "q"]
    plain = await sent("openrouter", ModelRequest(messages), model="google/gemini")
    assert "cache_control" not in json.dumps(plain)


async def test_known_secrets_reach_no_model() -> None:
    """Not in messages, calls, results or tools, and not in an answer that goes back."""
    redactor = Redactor()
    redactor.add("THE_KEY", "hunter2-hunter2")
    leaky = 'say hunter2-hunter2 "twice"'
    leaked = RawMessage("openai", b'{"role":"assistant","content":"hunter2-hunter2"}')
    messages = (
        SystemText(leaky),
        UserText(leaky),
        AssistantText(leaky, (ToolCall("a", "x", json.dumps({"q": leaky})),)),
        ToolResult("a", "x", leaky),
        AssistantText("hunter2-hunter2", raw=leaked),
    )
    schema = {"type": "object", "properties": {"q": {"enum": [leaky]}}}
    tool = ToolSpec("x", leaky, schema)
    request = ModelRequest(messages, (tool,))
    [body] = await asked("openai", request, redactor=redactor)
    assert b"hunter2" not in body
    assert body.count(b"[secret THE_KEY]") == 8
    json.loads(body)


async def test_a_secret_learnt_later_is_hidden_from_then_on() -> None:
    """Also in messages, tools and answers that were sent before."""
    redactor = Redactor()
    own = RawMessage("openai", b'{"role":"assistant","content":"hunter2-hunter2"}')
    messages = (UserText("say hunter2-hunter2"), AssistantText("hunter2-hunter2", raw=own))
    tool = ToolSpec("x", "knows hunter2-hunter2", {"type": "object"})
    request = ModelRequest((*messages, UserText("go")), (tool,))
    reply = Reply([sse(delta("stop", content="a"), "[DONE]")])
    async with talking("openai", reply, redactor=redactor) as (model, server):
        await gather(model, request)
        redactor.add("THE_KEY", "hunter2-hunter2")
        await gather(model, request)
    before, after = (each.body for each in server.asked)
    assert before.count(b"hunter2-hunter2") == 3
    assert b"hunter2" not in after


async def test_reasoning_details_in_many_pieces_are_joined() -> None:
    """Whole, in order, with what came with a later piece."""
    pieces = [
        delta(reasoning_details=[{"type": "reasoning.text", "index": 0, "text": f"{n},"}])
        for n in range(500)
    ]
    signed = {"type": "reasoning.text", "index": 0, "text": None, "signature": "s"}
    stream = sse(*pieces, delta(reasoning_details=[signed]), delta("stop", content="a"), "[DONE]")
    done = await ask("openrouter", Reply([stream]), GO)
    assert done.message.raw is not None
    (detail,) = json.loads(done.message.raw.body)["reasoning_details"]
    assert detail["text"] == done.message.thinking == "".join(f"{n}," for n in range(500))
    assert detail["signature"] == "s"


async def test_strange_text_is_sent() -> None:
    """Half a surrogate pair, control characters, and a request larger than a megabyte."""
    text = "\ud800 \x00 \u2028 " + "x" * 2_000_000
    body = await sent("openai", ModelRequest((UserText(text),)))
    assert body["messages"][0]["content"] == text.replace("\ud800", "?")


async def test_an_answer_without_a_word_is_not_sent_back() -> None:
    """Providers refuse an empty message."""
    done = await ask("openai", Reply([sse(delta("stop"), "[DONE]")]), GO)
    body = await sent("openai", ModelRequest((UserText("old"), done.message, UserText("q"))))
    assert [message["content"] for message in body["messages"]] == ["old", "q"]


async def test_notices_become_a_users_where_a_system_message_must_come_first() -> None:
    """The same message may be a prompt in one request and a notice in the next."""
    note = SystemText("note")
    first = ModelRequest((note, UserText("q"), note, SystemText(" ")))
    body = await sent("ollama", first)
    assert body["messages"] == [
        {"role": "system", "content": "note"},
        {"role": "user", "content": "q"},
        {"role": "user", "content": "[System notice] note"},
    ]
