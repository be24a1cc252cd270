"""What a model is sent: it grows at its end and nowhere else, byte for byte."""

from __future__ import annotations

import asyncio
import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dodona.core.messages import AssistantText, ToolResult
from dodona.models.scripted.model import ScriptedModel
from tests.agent.opening import Tools, calls, opened, plain_prompts, until
from tests.agent.wire import says, wired
from tests.models.wire_server import Asked, Reply, WireServer, named


def beginning(asked: Asked) -> bytes:
    """A request up to the end of its last message: what a provider's cache could hold."""
    return asked.body[: asked.body.index(b'],"stream":true')]


def assert_growing(server: WireServer) -> None:
    """Each request begins with all of the one before it."""
    for before, after in pairwise(server.asked):
        assert after.body.startswith(beginning(before))
        assert len(after.body) > len(before.body)


ROUNDS = (
    says("Let me see. ", calls=(("echo", '{"query": "1"}'), ("echo", '{"query":"2"}'))),
    says(calls=(("cite", '{ "query": "oak.md" }'),)),
    says("The oak, ", "says oak.md. Ünï 🌳"),
)


async def test_the_requests_of_a_run_share_their_beginning(file: Path) -> None:
    """Within a run each request is the one before it and something more."""
    async with wired(*ROUNDS) as (model, server), opened(file, model) as here:
        await here.answered("Which tree? Ünï 🌳")

        assert len(server.asked) == 3
        assert_growing(server)


async def test_the_requests_of_a_conversation_share_their_beginning(file: Path) -> None:
    """The next question goes on where the answer ended, remembered or read from the store."""
    async with wired(*ROUNDS, *ROUNDS, *ROUNDS) as (model, server):
        async with opened(file, model) as here:
            await here.answered("First?")
            await here.answered("Second?")  # remembered
        async with opened(file, model) as here:
            await here.answered("Third?")  # read

        assert len(server.asked) == 9
        assert_growing(server)


async def test_it_is_the_same_remembered_or_read(file: Path, tmp_path: Path) -> None:
    """A process that remembers a conversation sends what one sends that reads it."""
    bodies: list[bytes] = []
    for is_read in (False, True):
        place = tmp_path / f"{is_read}.db"
        await asyncio.to_thread(shutil.copyfile, file, place)
        async with wired(*ROUNDS, says("Yes.")) as (model, server):
            async with opened(place, model) as here:
                await here.answered("First?")
                if not is_read:
                    await here.answered("Second?")
            if is_read:
                async with opened(place, model) as here:
                    await here.answered("Second?")
            bodies.append(server.asked[-1].body)
    assert bodies[0] == bodies[1]


async def test_a_resumed_run_sends_the_same(file: Path) -> None:
    """What is read from the journal makes the request that would have been made without a crash."""
    tools = Tools()
    first = says("Let me see.", calls=(("keyed", '{"query": "wait"}'),))
    async with wired(says("Before."), first, says("Done.")) as (model, server):
        async with opened(file, model, tools=tools) as here:
            await here.answered("First?")
            run_id = await here.ask("Second?")
            await until(lambda: tools.at_once, "a tool at work")
            await here.agency.engine.shutdown(0)
        tools.gate.set()
        async with opened(file, model, tools=tools) as here:
            assert (await here.answer(run_id)).answer == "Let me see.\n\nDone."
        assert len(server.asked) == 3
        assert_growing(server)


async def test_a_provider_gets_its_own_json_back(file: Path) -> None:
    """Signed thinking goes back as it came: within a run, to the next one, and after a restart."""
    first = thinks("Hm, hm.", "c2lnbmVk", call='{"query":"1"}')
    last = thinks("So.", "YWdhaW4=", text="The oak.")
    async with wired(first, last, last, last, provider="anthropic") as (model, server):
        async with opened(file, model) as here:
            await here.answered("First?")
            await here.answered("Second?")
        async with opened(file, model) as here:
            await here.answered("Third?")

        sent: list[list[dict[str, Any]]] = [asked.json["messages"] for asked in server.asked]
        signed = {"type": "thinking", "thinking": "Hm, hm.", "signature": "c2lnbmVk"}
        assert signed in sent[1][1]["content"]
        for later in sent[2:]:
            assert _plain(later)[: len(sent[1])] == _plain(sent[1])
            assert _plain(later)[3]["content"][0] == {
                "type": "thinking",
                "thinking": "So.",
                "signature": "YWdhaW4=",
            }


def thinks(thought: str, signature: str, *, text: str = "", call: str = "") -> Reply:
    """Signed thinking on Anthropic's wire, then a text or a call."""
    content: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
        (
            {"type": "thinking", "thinking": "", "signature": ""},
            [
                {"type": "thinking_delta", "thinking": thought},
                {"type": "signature_delta", "signature": signature},
            ],
        )
    ]
    if text:
        content.append(({"type": "text", "text": ""}, [{"type": "text_delta", "text": text}]))
    if call:
        use = {"type": "tool_use", "id": "t1", "name": "echo", "input": {}}
        content.append((use, [{"type": "input_json_delta", "partial_json": call}]))
    events: list[dict[str, Any]] = [
        {
            "type": "message_start",
            "message": {"model": "wire", "content": [], "usage": {"input_tokens": 5}},
        }
    ]
    for index, (begun, deltas) in enumerate(content):
        events += [
            {"type": "content_block_start", "index": index, "content_block": begun},
            *({"type": "content_block_delta", "index": index, "delta": each} for each in deltas),
            {"type": "content_block_stop", "index": index},
        ]
    reason = {"stop_reason": "tool_use" if call else "end_turn"}
    events += [
        {"type": "message_delta", "delta": reason, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]
    return Reply([named(*events)])


def _plain(messages: Any) -> Any:
    """Without the marks of where a cache may begin, which move on."""
    if isinstance(messages, dict):
        return {k: _plain(v) for k, v in messages.items() if k != "cache_control"}
    return [_plain(each) for each in messages] if isinstance(messages, list) else messages


async def test_another_provider_gets_it_without_thinking(file: Path) -> None:
    """A change of models in mid-conversation: what was said is rebuilt for the other one."""
    last = thinks("So.", "YWdhaW4=", text="The oak.")
    async with wired(last, provider="anthropic") as (first, _), opened(file, first) as here:
        await here.answered("First?")
    async with wired(says("Yes.")) as (other, server), opened(file, other) as here:
        await here.answered("Second?")

        sent = json.dumps(server.asked[0].json["messages"])
        assert "The oak." in sent
        assert "YWdhaW4=" not in sent
        assert "So." not in sent


async def test_a_full_window_drops_to_half(file: Path, tmp_path: Path) -> None:
    """Whole runs are dropped, half of the budget at once; so the beginning then holds again."""
    count = 40
    model = ScriptedModel([f"Answer {n} " + "word " * 300 for n in range(count)])
    prompts = plain_prompts(tmp_path / "prompts")
    async with opened(
        file, model, prompts=prompts, token_budget=4000, compress_context=False
    ) as here:
        for number in range(count):
            await here.answered(f"Question {number}?")
    sizes = [len(request.messages) for request in model.requests]
    drops = [after for before, after in pairwise(sizes) if after <= before]
    # One drop for every five or six questions, and never below half of what fits.
    assert 2 <= len(drops) <= count // 5
    most = max(sizes)
    assert all(most // 2 - 2 <= size <= most // 2 + 3 for size in drops)
    for before, after in pairwise(model.requests):
        if len(after.messages) > len(before.messages):
            assert after.messages[: len(before.messages)] == before.messages


async def test_no_more_runs_than_wanted_are_in_a_window(file: Path) -> None:
    """max_context_nodes is how many runs a model is reminded of."""
    model = ScriptedModel([f"Answer {n}." for n in range(12)])
    async with opened(file, model, compress_context=False) as here:
        await here.set(max_context_nodes=4)
        for number in range(12):
            await here.answered(f"Question {number}?")
    remembered = [(len(request.messages) - 2) // 2 for request in model.requests]
    assert max(remembered) == 4
    assert min(remembered[5:]) >= 2


@pytest.mark.parametrize("is_read", [False, True])
async def test_calls_and_results_stay_together(file: Path, *, is_read: bool) -> None:
    """Also of a run that was cut: every call that a model is reminded of has its result."""
    model = ScriptedModel(
        [
            calls(("echo", "1"), ("fail", "2"), text="Let me see."),
            *(calls(("fail", f"{n}")) for n in range(3)),
            "Yes.",
            "Yes.",
        ]
    )
    async with opened(file, model) as here:
        await here.answered("First?")
        if not is_read:
            await here.answered("Second?")
    if is_read:
        async with opened(file, model) as here:
            await here.answered("Second?")
    wanted: list[str] = []
    for message in model.requests[-1].messages:
        if isinstance(message, ToolResult):
            assert message.call_id == wanted.pop(0)
        else:
            assert not wanted
        if isinstance(message, AssistantText):
            wanted = [call.id for call in message.calls]
    assert not wanted
