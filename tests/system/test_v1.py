"""The official client of OpenAI, pointed at a gateway, works: agents are its models."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.system.client import Answered, Client
from tests.system.waiting import until, until_found
from tests.system.wire_model import Asked, Call, Script, WireModel, calls, refuses, says

SEARCH: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "find_tree",
        "description": "Finds a tree.",
        "parameters": {
            "type": "object",
            "properties": {"kind": {"type": "string"}},
            "required": ["kind"],
        },
        "strict": True,
    },
}


@pytest.fixture
async def ai(client: Client) -> AsyncIterator[Any]:
    """The official client; what it would repeat by itself, it repeats once."""
    async with AsyncOpenAI(base_url=f"{client.url}/v1", api_key="none", max_retries=1) as made:
        yield made


class Talk:
    """What a client does that keeps the history itself."""

    def __init__(self, ai: Any, tag: str, *before: dict[str, str]) -> None:
        self.ai = ai
        self.tag = tag
        self.messages: list[Any] = list(before)

    async def ask(self, question: str, **more: Any) -> ChatCompletion:
        self.messages.append(user(f"{question} {self.tag}"))
        answered = await self.ai.chat.completions.create(
            model="oracle", messages=self.messages, **more
        )
        self.messages.append({"role": "assistant", "content": answered.choices[0].message.content})
        return answered


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def body(client: Client, text: str = "Where is the oak?", **more: Any) -> dict[str, Any]:
    return {"model": "oracle", "messages": [user(f"{text} {client.tag}")], **more}


async def post(client: Client, **more: Any) -> Answered:
    return await client.send("POST", "/v1/chat/completions", body(client, **more))


async def streamed(ai: Any, client: Client, **more: Any) -> list[ChatCompletionChunk]:
    stream: Any = await ai.chat.completions.create(**body(client, **more), stream=True)
    return [chunk async for chunk in stream]


def text_in(chunks: list[ChatCompletionChunk]) -> str:
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


def spoken(asked: Asked) -> list[tuple[str, str]]:
    """What a model was told of the conversation: by whom, and what."""
    return [(each["role"], each.get("content") or "") for each in asked.said]


async def conversations(client: Client) -> int:
    rows = await asyncio.to_thread(client.up.home.rows, "SELECT count(*) AS n FROM conversations")
    return rows[0]["n"]


# -- agents as models --------------------------------------------------------------------------


async def test_agents_are_models(ai: Any) -> None:
    """They can be listed, and looked at one by one."""
    found = [model async for model in ai.models.list()]
    assert [(model.id, model.owned_by) for model in found] == [("oracle", "dodona")]
    assert (await ai.models.retrieve("oracle")).id == "oracle"
    with pytest.raises(openai.NotFoundError, match="there is no model 'orcle'"):
        await ai.models.retrieve("orcle")


async def test_an_agent_answers(ai: Any, client: Client, script: Script) -> None:
    """With what all its calls used, as the provider billed them; its own tools stay its own."""
    script.will(
        calls(Call("vault_list"), texts=["I look."], usage=(100, 10)),
        says("The oak ", "is there.", usage=(250, 20), thinking="Hm."),
    )
    answered = await ai.chat.completions.create(**body(client))
    (choice,) = answered.choices
    assert choice.message.content == "I look.\n\nThe oak is there."
    assert (choice.finish_reason, choice.message.tool_calls) == ("stop", None)
    assert choice.message.model_extra == {"reasoning_content": "Hm."}
    assert answered.usage is not None
    used = answered.usage
    assert (used.prompt_tokens, used.completion_tokens, used.total_tokens) == (350, 30, 380)
    assert (answered.model, answered.object) == ("oracle", "chat.completion")
    run = await client.run(int(answered.id.removeprefix("chatcmpl-")))
    assert run["status"] == "succeeded"


async def test_an_answer_is_streamed(ai: Any, client: Client, script: Script) -> None:
    """Text as content, thoughts as reasoning, and at the end the finish and what was used."""
    script.will(
        calls(Call("vault_list"), texts=["I look."], usage=(100, 10)),
        says("The oak ", "is there.", usage=(250, 20), thinking="Hm."),
    )
    chunks = await streamed(ai, client, stream_options={"include_usage": True})
    assert text_in(chunks) == "I look.\n\nThe oak is there."
    assert chunks[0].choices[0].delta.role == "assistant"
    thoughts = [(c.choices[0].delta.model_extra or {}) for c in chunks if c.choices]
    assert [each["reasoning_content"] for each in thoughts if each] == ["Hm."]
    assert not any(c.choices[0].delta.tool_calls for c in chunks if c.choices)
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert len({c.id for c in chunks}) == 1
    assert [c.usage is None for c in chunks] == [True] * (len(chunks) - 1) + [False]
    assert chunks[-1].usage is not None
    assert (chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens) == (350, 30)


def test_the_client_without_a_loop_works_too(client: Client, script: Script) -> None:
    """It is another transport."""
    script.will(says("So it is."))
    with OpenAI(base_url=f"{client.url}/v1", api_key="none") as ai:
        create: Any = ai.chat.completions.create
        answered, stream = create(**body(client)), create(**body(client), stream=True)
        assert text_in(list(stream)) == answered.choices[0].message.content == "So it is."


async def test_the_stream_as_it_is_on_the_wire(client: Client, script: Script) -> None:
    """Each event is one line of data and an empty one; the last is [DONE]."""
    script.will(says("Yes."))
    answered = await post(client, stream=True)
    assert answered.status == 200
    assert answered.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert "Dodona-Run" in answered.headers
    *events, last, rest = answered.text.split("\n\n")
    assert (last, rest) == ("data: [DONE]", "")
    told = [json.loads(event.removeprefix("data: ")) for event in events]
    assert all(event.startswith("data: {") and "\n" not in event for event in events)
    assert {each["object"] for each in told} == {"chat.completion.chunk"}
    assert [each["choices"][0]["delta"] for each in told] == [
        {"role": "assistant", "content": "", "refusal": None},
        {"content": "Yes."},
        {},
    ]
    assert "usage" not in told[-1]


async def test_an_answer_may_be_cut(ai: Any, client: Client, script: Script) -> None:
    """By max_tokens, which is why it ends, and reaches the model; so do temperature and stop."""
    script.will(says("The oak", finish="length"))
    wanted: dict[str, Any] = {"max_completion_tokens": 7, "temperature": 0.25, "stop": "END"}
    answered = await ai.chat.completions.create(**body(client, **wanted))
    assert answered.choices[0].finish_reason == "length"
    assert answered.choices[0].model_extra == {"termination_reason": "max_tokens"}
    sent = script.asked[0].json
    assert (sent["temperature"], sent["stop"]) == (0.25, ["END"])
    assert 7 in (sent.get("max_tokens"), sent.get("max_completion_tokens"))
    chunks = await streamed(ai, client, **wanted)
    assert chunks[-1].choices[0].finish_reason == "length"
    assert chunks[-1].choices[0].model_extra == {"termination_reason": "max_tokens"}


async def test_another_model_may_answer_for_an_agent(
    ai: Any, client: Client, script: Script
) -> None:
    """It is named behind a slash."""
    script.will(says("Yes."))
    asked = {**body(client), "model": "oracle/other-model"}
    assert (await ai.chat.completions.create(**asked)).model == "oracle/other-model"
    assert script.asked[0].json["model"] == "other-model"


# -- conversations -----------------------------------------------------------------------------


async def test_a_user_has_a_session(ai: Any, client: Client, script: Script) -> None:
    """It goes on by itself: of the messages only those after the last answer count."""
    script.will_by(lambda asked: says(f"answer {asked.number}"))
    name = f"ada {client.tag}"
    await ai.chat.completions.create(**body(client, "one", user=name))
    made_up: list[Any] = [user("never said"), {"role": "assistant", "content": "nor this"}]
    now = user(f"two {client.tag}")
    await ai.chat.completions.create(model="oracle", messages=[*made_up, now], user=name)
    assert spoken(script.asked[1]) == [
        ("user", f"one {client.tag}"),
        ("assistant", "answer 1"),
        ("user", f"two {client.tag}"),
    ]
    await ai.chat.completions.create(**body(client, "three", user="another"))
    assert spoken(script.asked[2]) == [("user", f"three {client.tag}")]


async def test_who_recites_goes_on_in_the_same_conversation(
    ai: Any, client: Client, script: Script
) -> None:
    """A growing history is kept once, streamed or not; what the agent looked up is still there."""
    script.will_by(
        lambda asked: (
            calls(Call("vault_list")) if asked.number == 1 else says(f"answer {asked.number}")
        )
    )
    before = await conversations(client)
    talk = Talk(ai, client.tag)
    await talk.ask("one")
    await talk.ask("two")
    stream: Any = await ai.chat.completions.create(
        model="oracle", messages=[*talk.messages, user(f"three {client.tag}")], stream=True
    )
    text = text_in([chunk async for chunk in stream])
    talk.messages += [user(f"three {client.tag}"), {"role": "assistant", "content": text}]
    await talk.ask("four")
    assert await conversations(client) == before + 1
    told = spoken(script.asked[-1])
    assert [text for role, text in told if role == "user"] == [
        f"{number} {client.tag}" for number in ("one", "two", "three", "four")
    ]
    assert "tool" in [role for role, _ in told]


async def test_a_history_from_elsewhere_is_the_past(
    ai: Any, client: Client, script: Script
) -> None:
    """It need not begin with the user; questions in a row are one. It is kept once."""
    script.will(says("Indeed."))
    before = await conversations(client)
    talk = Talk(
        ai,
        client.tag,
        {"role": "assistant", "content": "Welcome!"},
        user("Are there"),
        user("oaks?"),
        {"role": "assistant", "content": "Many."},
    )
    await talk.ask("And pines?")
    expected = [
        ("assistant", "Welcome!"),
        ("user", "Are there\n\noaks?"),
        ("assistant", "Many."),
        ("user", f"And pines? {client.tag}"),
    ]
    assert spoken(script.asked[0]) == expected
    await talk.ask("And elms?")
    assert spoken(script.asked[1])[:4] == expected
    assert await conversations(client) == before + 1


async def test_a_history_that_is_told_otherwise_is_another_one(
    ai: Any, client: Client, script: Script
) -> None:
    """An edited answer, or the same question again: neither disturbs what was said before."""
    script.will_by(lambda asked: says(f"answer {asked.number}"))
    talk = Talk(ai, client.tag)
    await talk.ask("one")
    before = await conversations(client)
    again = [*talk.messages, user(f"two {client.tag}")]
    both = await asyncio.gather(
        *(ai.chat.completions.create(model="oracle", messages=again) for _ in range(3))
    )
    assert len({answered.choices[0].message.content for answered in both}) == 3
    expected = [("user", f"one {client.tag}"), ("assistant", "answer 1")]
    assert all(
        spoken(asked) == [*expected, ("user", f"two {client.tag}")] for asked in script.asked[1:]
    )
    assert await conversations(client) == before + 2
    edited = [again[0], {"role": "assistant", "content": "edited"}, again[2]]
    await ai.chat.completions.create(model="oracle", messages=edited)
    assert spoken(script.asked[-1])[1] == ("assistant", "edited")


async def test_what_a_client_wants_heeded(ai: Any, client: Client, script: Script) -> None:
    """Comes from the user's side, after the agent's own prompt and before all that was said."""
    script.will(says("Aye."))
    talk = Talk(ai, client.tag, {"role": "system", "content": "Speak like a sailor."})
    await talk.ask("one", extra_body={"seed": 1, "metadata": {"a": "b"}})
    talk.messages.insert(1, {"role": "developer", "content": "Be brief."})
    await talk.ask("two")
    first, *said = script.asked[1].messages
    assert first["role"] == "system"
    assert "sailor" not in first["content"]
    assert said[0] == {
        "role": "user",
        "content": "Instructions for this conversation:\n\nSpeak like a sailor.\n\nBe brief.",
    }
    assert spoken(script.asked[1])[1:] == [
        ("user", f"one {client.tag}"),
        ("assistant", "Aye."),
        ("user", f"two {client.tag}"),
    ]


async def test_a_question_may_be_long(ai: Any, client: Client, script: Script) -> None:
    """People paste documents."""
    script.will(says("Read."))
    parts = [{"type": "text", "text": "oak " * 5_000}, {"type": "text", "text": client.tag}]
    answered = await ai.chat.completions.create(
        model="oracle",
        messages=[{"role": "user", "content": parts}],
    )
    assert answered.choices[0].message.content == "Read."
    assert spoken(script.asked[0])[-1][1] == "oak " * 5_000 + client.tag


# -- tools of the client's own -----------------------------------------------------------------


async def test_a_client_brings_its_tools(ai: Any, client: Client, script: Script) -> None:
    """The agent's model answers directly: the round trip is the client's, and nothing is kept."""
    script.will(
        calls(
            Call("find_tree", {"kind": "oak"}, id="call_a"),
            Call("find_tree", {"kind": "elm"}, id="call_b"),
            usage=(40, 4),
        ),
        says("Both stand.", usage=(60, 6)),
    )
    before = await conversations(client)
    asked = body(client, "Which trees?", tools=[SEARCH], tool_choice="auto")
    first = await ai.chat.completions.create(**asked, parallel_tool_calls=True)
    message = first.choices[0].message
    assert (first.choices[0].finish_reason, message.content) == ("tool_calls", None)
    made: list[Any] = message.tool_calls or []
    assert [(call.id, call.function.name) for call in made] == [
        ("call_a", "find_tree"),
        ("call_b", "find_tree"),
    ]
    results = [{"role": "tool", "tool_call_id": call.id, "content": "there"} for call in made]
    answer = message.model_dump(exclude_none=True)
    asked["messages"] += [answer, *results]
    second = await ai.chat.completions.create(**asked)
    assert second.choices[0].message.content == "Both stand."
    assert second.usage is not None
    assert (second.usage.prompt_tokens, second.usage.completion_tokens) == (60, 6)
    sent = script.asked[1].json
    assert [tool["function"] for tool in sent["tools"]] == [SEARCH["function"]]
    assert script.asked[0].json["parallel_tool_calls"] is True
    assert [each["role"] for each in sent["messages"]] == ["user", "assistant", "tool", "tool"]
    assert [call["id"] for call in sent["messages"][1]["tool_calls"]] == ["call_a", "call_b"]
    assert await conversations(client) == before
    rows = await asyncio.to_thread(
        client.up.home.rows,
        "SELECT input_tokens, agent_id, session_key, run_id FROM token_records "
        "ORDER BY id DESC LIMIT 2",
    )
    assert [tuple(row.values()) for row in rows] == [
        (60, "oracle", "oracle:v1:local:main", None),
        (40, "oracle", "oracle:v1:local:main", None),
    ]


async def test_calls_are_streamed(ai: Any, client: Client, script: Script) -> None:
    """Each with its index; its id and name come first, its arguments piece by piece."""
    script.will(
        calls(
            Call("find_tree", {"kind": "oak"}, id="call_a"),
            Call("find_tree", {"kind": "elm"}, id=""),
            texts=["I look."],
        )
    )
    chunks = await streamed(
        ai, client, tools=[SEARCH], stream_options={"include_usage": True}, user="ada"
    )
    assert text_in(chunks) == "I look."
    found: dict[int, list[Any]] = {}
    for chunk in chunks:
        for choice in chunk.choices:
            pieces: list[Any] = list(choice.delta.tool_calls or ())
            for piece in pieces:
                known = found.setdefault(piece.index, [piece.id, piece.function.name, ""])
                known[2] += piece.function.arguments or ""
    assert found[0] == ["call_a", "find_tree", '{"kind": "oak"}']
    assert found[1][1:] == ["find_tree", '{"kind": "elm"}']
    assert found[1][0] not in (None, "", "call_a")
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "tool_calls"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 110


async def test_a_format_is_passed_on_with_tools(ai: Any, client: Client, script: Script) -> None:
    """An agent that works with its own tools answers in text, and says so."""
    script.will(says('{"a": 1}'))
    wanted = {"type": "json_object"}
    await ai.chat.completions.create(
        **body(client, tools=[SEARCH], tool_choice="none", response_format=wanted)
    )
    sent = script.asked[0].json
    assert (sent["response_format"], sent["tool_choice"]) == (wanted, "none")
    with pytest.raises(openai.BadRequestError, match="an agent that uses its own tools") as raised:
        await ai.chat.completions.create(**body(client, response_format=wanted))
    assert raised.value.param == "response_format"


async def test_a_client_may_ask_any_model_to_think(client: Client, script: Script) -> None:
    """Also one that is not known to support it, with its own tools and with the agent's."""
    script.will(says("Here."))
    for tools in (None, [SEARCH]):
        for effort in ("high", None):
            await post(client, tools=tools, reasoning_effort=effort)
    sent = [asked.json.get("reasoning_effort") for asked in script.asked]
    assert sent == ["medium", None] * 2


# -- what goes wrong ---------------------------------------------------------------------------


async def test_errors_are_those_that_the_client_knows(
    ai: Any, client: Client, script: Script
) -> None:
    """Each status is an exception of its own, with what is wrong and where."""
    with pytest.raises(openai.NotFoundError) as missing:
        await ai.chat.completions.create(**{**body(client), "model": "gpt-5"})
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError, match="n must be 1") as wrong:
        await ai.chat.completions.create(**body(client, n=2))
    assert (wrong.value.param, wrong.value.type) == ("n", "invalid_request_error")
    with pytest.raises(openai.PermissionDeniedError):
        await ai.with_options(default_headers={"Origin": "http://evil.example"}).models.list()
    with pytest.raises(openai.APIStatusError) as large:
        await ai.chat.completions.create(**body(client, "x" * (2 << 20)))
    assert (large.value.status_code, large.value.code) == (413, "request_too_large")
    assert script.asked == []


PROVIDER_FAILS = [
    (401, openai.InternalServerError, openai.InternalServerError),
    (400, openai.InternalServerError, openai.BadRequestError),
]


@pytest.mark.parametrize(("status", "of_run", "of_relay"), PROVIDER_FAILS)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_provider_that_fails(
    client: Client,
    ai: Any,
    script: Script,
    stream: Any,
    status: int,
    of_run: type[openai.APIStatusError],
    of_relay: type[openai.APIStatusError],
) -> None:
    """Before the first word it is an error by its status; what has cost something is not repeated.

    What the provider finds wrong with a client's tools, the client must put right.
    """
    script.will(refuses(status, "no such parameter"))
    with pytest.raises(of_run):
        await ai.chat.completions.create(**body(client, stream=stream))
    with pytest.raises(of_relay, match="no such parameter"):
        await ai.chat.completions.create(**body(client, stream=stream, tools=[SEARCH]))
    assert len(script.asked) == 2


@pytest.mark.parametrize("tools", [None, [SEARCH]], ids=["run", "relay"])
async def test_an_error_in_the_middle_is_told_in_the_stream(
    client: Client, ai: Any, script: Script, tools: Any
) -> None:
    """The official client raises it; the stream has no [DONE]."""
    script.will_by(
        lambda asked: says("The oak ", end="cut") if asked.number == 1 else refuses(400, "no more")
    )
    stream: Any = await ai.chat.completions.create(**body(client, tools=tools), stream=True)
    seen: list[ChatCompletionChunk] = []

    async def read() -> None:
        async for chunk in stream:
            seen.append(chunk)  # noqa: PERF401 - those before an error count

    with pytest.raises(openai.APIError) as raised:
        await read()
    assert text_in(seen) == "The oak "
    assert raised.value.code == "provider_failed"
    assert not isinstance(raised.value, openai.APIStatusError)


async def test_what_is_sent_is_not_taken_back(client: Client, script: Script) -> None:
    """A model that begins anew and says the same goes on; one that does not is an error."""
    script.will_by(
        lambda asked: (
            says("The oak ", end="cut")
            if asked.number in (1, 3)
            else says("The oak ", "stands.")
            if asked.number == 2
            else says("An elm ", "stands.")
        )
    )
    answered = await post(client, stream=True)
    told = [json.loads(e[6:]) for e in answered.text.split("\n\n") if e.startswith("data: {")]
    texts = [e["choices"][0]["delta"].get("content", "") for e in told if e.get("choices")]
    assert "".join(texts) == "The oak stands."
    assert answered.text.endswith("data: [DONE]\n\n")
    other = await post(client, stream=True)
    assert '"code":"answer_restarted"' in other.text
    assert "[DONE]" not in other.text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tools", [None, [SEARCH]], ids=["run", "relay"])
async def test_who_leaves_wants_no_more(
    client: Client, script: Script, stream: Any, tools: Any
) -> None:
    """The line to the model is closed, what was used is settled, and the run is cancelled."""
    script.will(says("The oak ", "never said", hold=1))
    asked = body(client, stream=stream, **({"tools": tools} if tools else {}))
    posting = asyncio.create_task(client.send("POST", "/v1/chat/completions", asked))
    at_model = await script.reached()
    await asyncio.sleep(0)
    posting.cancel()
    await asyncio.gather(posting, return_exceptions=True)
    await until(lambda: at_model.left, "the line to the model to be closed")

    async def settled() -> bool:
        held = "SELECT id FROM reservations WHERE status = 'held'"
        return not await asyncio.to_thread(client.up.home.rows, held)

    await until_found(settled, "the call to be settled")
    if not tools:
        (run,) = (await client.get("/api/runs", params={"limit": 1}))["runs"]
        assert (await client.ended(run["id"]))["status"] == "cancelled"


async def test_without_a_budget_nothing_goes_out(
    own: Client, script: Script, wire: WireModel
) -> None:
    """Neither a run nor a relay reaches the model; the client is told, and does not ask again."""
    own.up.home.write(base_url=wire.url, more="[budgets.daily]\ntokens = 0\n")
    await own.up.begin()
    async with AsyncOpenAI(base_url=f"{own.url}/v1", api_key="none") as ai:
        create: Any = ai.chat.completions.create
        for tools in (None, [SEARCH]):
            for stream in (False, True):
                with pytest.raises(openai.RateLimitError) as raised:
                    await create(**body(own, stream=stream, tools=tools))
                assert raised.value.code == "budget_exceeded"
                assert raised.value.response.headers["x-should-retry"] == "false"
    assert script.asked == script.summing == []
    runs = await own.get("/api/runs")
    assert len(runs["runs"]) == 2


RESERVED = "[budgets]\nwait_seconds = {}\n[budgets.daily]\ntokens = 12000\n"


async def test_budget_that_others_have_reserved_is_worth_a_retry(
    own: Client, script: Script, wire: WireModel
) -> None:
    """The client is told so, and after how many seconds."""
    own.up.home.write(base_url=wire.url, more=RESERVED.format(0))
    await own.up.begin()
    script.will(says("Here ", "I am.", hold=1))
    asked = body(own, tools=[SEARCH], max_tokens=4000)
    held = [asyncio.create_task(own.send("POST", "/v1/chat/completions", asked)) for _ in range(2)]
    await script.reached(2)
    relay = await own.send("POST", "/v1/chat/completions", asked)
    run = await own.send("POST", "/v1/chat/completions", body(own, max_tokens=4000))
    for each in (relay, run, await own.try_to_ask("Why?", max_tokens=4000)):
        assert (each.status, each.headers["Retry-After"]) == (429, "5")
    assert relay.headers["x-should-retry"] == run.headers["x-should-retry"] == "true"
    script.release()
    assert [(await each).status for each in held] == [200, 200]


async def test_a_run_that_has_cost_something_is_not_repeated(
    own: Client, script: Script, wire: WireModel
) -> None:
    """Reservations block its second call: Retry-After is in seconds, but a retry is not advised."""
    more = RESERVED.format(0).replace("12000", "20000")
    own.up.home.write(base_url=wire.url, more=more)
    await own.up.begin()
    search = calls(Call("vault_search", {"query": "oak"}), usage=(3900, 100))
    held = says("Here ", "I am.", hold=1)
    script.will_by(lambda asked: search if "run" in asked.question else held)
    relays = [asyncio.create_task(post(own, tools=[SEARCH], max_tokens=4000)) for _ in range(2)]
    await script.reached(2)
    asked = body(own, "Is it a run?", max_tokens=4000)
    refused = await own.send("POST", "/v1/chat/completions", asked)
    assert (refused.status, refused.headers["Retry-After"]) == (429, "5")
    assert refused.headers["x-should-retry"] == "false"
    assert len(script.asked) == 3
    script.release()
    assert [(await each).status for each in relays] == [200, 200]


async def test_requests_wait_for_reserved_budget(
    own: Client, script: Script, wire: WireModel
) -> None:
    """The budget is large enough for two at once; none is refused."""
    own.up.home.write(base_url=wire.url, more=RESERVED.format(300))
    await own.up.begin()
    script.will(says("Here ", "I am.", hold=1))
    requests = [{"tools": [SEARCH]}, {}, {"stream": True}, {"tools": [SEARCH], "stream": True}]
    sent = [
        asyncio.create_task(
            own.send("POST", "/v1/chat/completions", body(own, max_tokens=4000, **each))
        )
        for each in requests
    ]
    await script.reached()
    script.release()
    assert [(await each).status for each in sent] == [200] * len(sent)
    assert script.most_at_once <= 2
