"""Every provider, over real HTTP, against aimock: what comes when all goes well."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from dodona.core.messages import AssistantText, RawMessage, ToolCall, ToolResult
from dodona.core.ports.model import (
    CallDelta,
    FinishReason,
    Model,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
)
from dodona.models import PROVIDERS
from dodona.net.http import HttpPool
from tests.conformance.models.asking import TOOLS, ask, end, of, question
from tests.conformance.models.line import Line
from tests.conformance.models.matrix import SUBJECTS, Subject
from tests.conformance.models.mock import Aimock

WORDS = 'Ζεῦ ἄνα, Δωδωναῖε: the oak speaks, «and its leaves answer» – \\ "quoted"\nnew line'
THOUGHTS = "The doves came from Thebes; one of them spoke with a human voice."
CALLS = [
    {"id": "call_weather", "name": "weather", "arguments": {"place": "Δωδώνη"}},
    {"id": "call_clock", "name": "clock", "arguments": {"zone": "Europe/Athens"}},
]


async def test_text(aimock: Aimock, model: Model, subject: Subject, prompt: str) -> None:
    """Text comes as it is said and then whole, and says who gave it."""
    await aimock.answers({"match": {"userMessage": prompt}, "response": {"content": WORDS}})
    events = await ask(model, question(prompt))
    pieces = of(TextDelta, events)
    assert pieces
    assert "".join(piece.text for piece in pieces) == WORDS
    done = end(events)
    assert (done.message.text, done.message.calls) == (WORDS, ())
    assert (done.finish, done.provider, done.model) == (
        FinishReason.STOP,
        subject.provider,
        subject.model,
    )
    (entry,) = await aimock.asked(prompt)
    assert entry["path"] == subject.endpoint
    roles = [message["role"] for message in entry["body"]["messages"]]
    assert roles == ["system", "user"]


async def test_thinking(aimock: Aimock, model: Model, prompt: str) -> None:
    """Thinking comes before the text and is kept apart from it."""
    await aimock.answers(
        {
            "match": {"userMessage": prompt},
            "response": {"content": WORDS, "reasoning": THOUGHTS},
        }
    )
    events = await ask(model, question(prompt, thinking=True))
    thoughts = of(ThinkingDelta, events)
    assert thoughts
    assert "".join(thought.text for thought in thoughts) == THOUGHTS
    assert events.index(of(TextDelta, events)[0]) > events.index(thoughts[-1])
    message = end(events).message
    assert (message.thinking, message.text) == (THOUGHTS, WORDS)


async def test_parallel_tools(aimock: Aimock, model: Model, prompt: str) -> None:
    """Two calls come in one answer; their results go back, each to its call."""
    await aimock.answers(
        {
            "match": {"userMessage": prompt, "toolName": "weather", "hasToolResult": False},
            "response": {"content": "Let me see.", "toolCalls": CALLS},
        },
        {
            "match": {"userMessage": prompt, "hasToolResult": True},
            "response": {"content": WORDS},
        },
    )
    request = question(prompt, tools=TOOLS)
    events = await ask(model, request)
    assert {delta.index for delta in of(CallDelta, events)} == {0, 1}
    done = end(events)
    assert (done.finish, done.message.text) == (FinishReason.TOOL_CALLS, "Let me see.")
    assert as_fixture(done.message) == CALLS

    assert end(await ask(model, answered(request, done.message))).message.text == WORDS
    _, entry = await aimock.asked(prompt)
    assistant, *results = entry["body"]["messages"][2:]
    assert [call["id"] for call in assistant["tool_calls"]] == ["call_weather", "call_clock"]
    assert [(result["tool_call_id"], result["content"]) for result in results] == [
        ("call_weather", "weather is fine"),
        ("call_clock", "clock is fine"),
    ]


async def test_thinking_in_a_tool_loop(
    aimock: Aimock, line: Line, subject: Subject, http: HttpPool, prompt: str
) -> None:
    """Thinking goes back with the results where it must, unchanged; aimock, strict, checks too."""
    await aimock.answers(
        {
            "match": {"userMessage": prompt, "hasToolResult": False},
            "response": {
                "toolCalls": CALLS,
                "reasoning": THOUGHTS,
                "reasoningSignature": "signed-by-the-oak",
                "redactedThinking": ["sealed-by-the-oak"],
            },
        },
        {
            "match": {"userMessage": prompt, "hasToolResult": True},
            "response": {"content": WORDS},
        },
    )
    model = subject.at(line.url, http)
    request = question(prompt, tools=TOOLS, thinking=True, max_tokens=4000)
    done = end(await ask(model, request))
    assert (done.finish, done.message.thinking) == (FinishReason.TOOL_CALLS, THOUGHTS)
    assert end(await ask(model, answered(request, done.message))).message.text == WORDS
    body = line.requests[-1].json
    assert {key: body.get(key) for key in subject.thinking} == subject.thinking
    assistant = next(said for said in body["messages"] if said["role"] == "assistant")
    if subject.provider == "anthropic":
        assert assistant["content"][:2] == [
            {"type": "redacted_thinking", "data": "sealed-by-the-oak"},
            {"type": "thinking", "thinking": THOUGHTS, "signature": "signed-by-the-oak"},
        ]
    if subject.provider == "deepseek":
        assert assistant["reasoning_content"] == THOUGHTS


async def test_calls_of_another_provider(
    aimock: Aimock, line: Line, subject: Subject, http: HttpPool, prompt: str
) -> None:
    """A tool loop that another provider began goes on here, without thinking."""
    await aimock.answers(
        {"match": {"userMessage": prompt, "hasToolResult": True}, "response": {"content": WORDS}}
    )
    calls = (ToolCall("toolu:1/2", "weather", '{"place":"Δωδώνη"}'), ToolCall("c2", "clock", "{"))
    raw = RawMessage("another", b'{"role":"assistant","content":"in another provider\'s own form"}')
    begun = AssistantText("Let me see.", calls, thinking=THOUGHTS, raw=raw)
    request = question(prompt, tools=TOOLS, thinking=True, max_tokens=4000)
    done = end(await ask(subject.at(line.url, http), answered(request, begun)))
    assert done.message.text == WORDS
    (sent,) = line.requests
    assert all(sent.json.get(key) != value for key, value in subject.thinking.items())
    assert THOUGHTS.encode() not in sent.body
    assert b"another provider" not in sent.body
    (entry,) = await aimock.asked(prompt)
    assistant, *results = entry["body"]["messages"][2:]
    ids = [call["id"] for call in assistant["tool_calls"]]
    assert [result["tool_call_id"] for result in results] == ids
    assert len(set(ids)) == 2


async def test_usage(aimock: Aimock, model: Model, subject: Subject, prompt: str) -> None:
    """Usage means the same for all, and the provider's own account is untouched."""
    account: dict[str, Any] = {"prompt_tokens": 120, "completion_tokens": 34, "total_tokens": 154}
    if subject.provider == "openrouter":  # the only account aimock gives in detail
        account |= {
            "cost": 0.00125,
            "cost_details": {
                "upstream_inference_cost": 0.001,
                "upstream_inference_prompt_cost": 0,
                "upstream_inference_completions_cost": 0,
            },
            "prompt_tokens_details": {"cached_tokens": 100},
            "completion_tokens_details": {"reasoning_tokens": 20},
        }
    await aimock.answers(
        {
            "match": {"userMessage": prompt},
            "response": {"content": WORDS, "usage": account},
        }
    )
    usage = end(await ask(model, question(prompt))).usage
    assert (usage.input_tokens, usage.output_tokens) == (120, 34)
    if subject.provider == "anthropic":
        account = {"input_tokens": 120, "output_tokens": 34}
    assert usage.wire == account
    in_detail = (usage.cost_usd, usage.cache_read_tokens, usage.reasoning_tokens)
    assert in_detail == ((0.00125, 100, 20) if "cost" in account else (None, 0, 0))


@pytest.mark.parametrize(
    ("reason", "finish"),
    [("length", FinishReason.LENGTH), ("content_filter", FinishReason.REFUSAL)],
)
async def test_finish(
    aimock: Aimock, model: Model, subject: Subject, prompt: str, reason: str, finish: FinishReason
) -> None:
    """Why an answer ended is told in one set of words."""
    if subject.provider == "anthropic":
        reason = {"content_filter": "refusal"}.get(reason, reason)
    await aimock.answers(
        {
            "match": {"userMessage": prompt},
            "response": {"content": WORDS, "finishReason": reason},
        }
    )
    done = end(await ask(model, question(prompt)))
    assert done.finish is finish


async def test_suffix_thinking(
    aimock: Aimock, line: Line, subject: Subject, http: HttpPool, prompt: str
) -> None:
    """`:thinking` is no part of the model's name; it asks for thinking in the provider's words."""
    await aimock.answers(
        {
            "match": {"userMessage": prompt, "model": subject.model},
            "response": {"content": WORDS, "reasoning": THOUGHTS},
        }
    )
    plain, suffixed = subject.at(line.url, http), subject.at(line.url, http, suffix=":thinking")
    request = question(prompt, max_tokens=4000)
    await ask(plain, request)
    assert end(await ask(suffixed, request)).message.thinking == THOUGHTS
    before, after = (request.json for request in line.requests)
    assert after["model"] == subject.model
    assert {key: after[key] for key in after if after[key] != before.get(key)} == subject.thinking


async def test_many_at_once(aimock: Aimock, model: Model, prompt: str) -> None:
    """Streams that run at once do not mix."""
    prompts = [f"{prompt} number {number}." for number in range(24)]
    await aimock.answers(
        *(
            {"match": {"userMessage": each}, "response": {"content": f"To {each} {WORDS}"}}
            for each in prompts
        )
    )
    answers = await asyncio.gather(*(ask(model, question(each)) for each in prompts))
    assert [end(events).message.text for events in answers] == [
        f"To {each} {WORDS}" for each in prompts
    ]


async def test_closed_after_answer(
    aimock: Aimock, line: Line, subject: Subject, http: HttpPool, prompt: str
) -> None:
    """A server that closes a connection we would use again costs no call: llama.cpp does that."""
    line.closes_after_answer = True
    await aimock.answers({"match": {"userMessage": prompt}, "response": {"content": WORDS}})
    model = subject.at(line.url, http)
    for _ in range(4):
        assert end(await ask(model, question(prompt))).message.text == WORDS


@pytest.mark.parametrize("name", [subject.provider for subject in SUBJECTS])
def test_default_address(name: str) -> None:
    """What is tested here below a base URL is what the provider's own address has."""
    (subject,) = (subject for subject in SUBJECTS if subject.provider == name)
    default = PROVIDERS[name].base_url
    assert not default or urlsplit(default).path == subject.base


def as_fixture(message: AssistantText) -> list[dict[str, Any]]:
    return [
        {"id": call.id, "name": call.name, "arguments": json.loads(call.arguments)}
        for call in message.calls
    ]


def answered(request: ModelRequest, message: AssistantText) -> ModelRequest:
    results = (ToolResult(call.id, call.name, f"{call.name} is fine") for call in message.calls)
    return replace(request, messages=(*request.messages, message, *results))
