"""A run is a journal: what has happened is applied, what was cut is made again, once."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dodona.core.chunks import SEQ_PER_ATTEMPT, StreamChunk
from dodona.core.domain.conversations.conversation import RunStatus
from dodona.core.errors import RunFenced
from dodona.core.messages import AssistantText, ToolResult
from dodona.core.ports.model import ModelRequest
from dodona.models.scripted.model import ScriptedModel
from tests.agent.opening import (
    USER,
    Opened,
    Shelf,
    Tools,
    bodies,
    calls,
    edited,
    kinds,
    opened,
    plain_prompts,
    text_of,
    until,
)
from tests.agent.wire import hangs, says, wired
from tests.clock import Clock


async def left_at_work(here: Opened, text: str = "Why?", **more: Any) -> int:
    """Ask, wait until a tool is at work, and leave."""
    run_id = await here.ask(text, **more)
    await until(lambda: here.tools.at_once, "a tool at work")
    assert await here.agency.engine.shutdown(0) == 1
    return run_id


async def test_an_effect_that_was_cut_is_not_repeated(file: Path) -> None:
    """A once-tool is called once: after a crash the model reads that nobody knows what it did."""
    tools = Tools()
    first = ScriptedModel([calls(("once", "wait"), text="Let me see.")])
    async with opened(file, first, tools=tools) as here:
        run_id = await left_at_work(here)
        assert (await here.run(run_id)).status is RunStatus.RUNNING
    then = ScriptedModel(["It was done."])
    async with opened(file, then, tools=tools) as here:
        answer = await here.answer(run_id)

    assert answer.answer == "Let me see.\n\nIt was done."
    assert len(tools.of("once")) == 1
    (request,) = then.requests
    result = request.messages[-1]
    assert isinstance(result, ToolResult)
    assert result.failed
    assert "unknown" in result.text
    assert len(first.requests) == 1


async def test_an_effect_with_a_key_is_repeated_with_its_key(file: Path) -> None:
    """A keyed tool is called again, and can tell by the key that it is the same call."""
    tools = Tools()
    async with opened(file, ScriptedModel([calls(("keyed", "wait"))]), tools=tools) as here:
        run_id = await left_at_work(here)
    tools.gate.set()
    async with opened(file, ScriptedModel(["Done."]), tools=tools) as here:
        answer = await here.answer(run_id)

    assert answer.answer == "Done."
    before, after = tools.of("keyed")
    assert before.context.key == after.context.key
    assert str(run_id) in before.context.key


async def test_keys_differ_from_call_to_call(file: Path) -> None:
    """Two calls are two effects, also with the same arguments."""
    twice, again = calls(("keyed", "1"), ("keyed", "1")), calls(("keyed", "1"))
    model = ScriptedModel([twice, again, "Done.", again, "Done."])
    async with opened(file, model) as here:
        await here.answered()
        await here.answered()

        assert len({made.context.key for made in here.tools.made}) == len(here.tools.made)


async def test_a_tool_without_effect_is_called_again(file: Path) -> None:
    """Cut while it only looked at something: it looks again."""
    tools = Tools()
    async with opened(file, ScriptedModel([calls(("echo", "wait"))]), tools=tools) as here:
        run_id = await left_at_work(here)
    tools.gate.set()

    def again(request: ModelRequest) -> AssistantText | str:
        """Whether the answer before it was kept or not: that depends on the moment."""
        has_result = isinstance(request.messages[-1], ToolResult)
        return "Done." if has_result else calls(("echo", "wait"))

    async with opened(file, ScriptedModel([again] * 2), tools=tools) as here:
        answer = await here.answer(run_id)

    assert answer.answer == "Done."
    assert [made.name for made in tools.made] == ["echo", "echo"]


async def test_an_answer_is_kept_while_its_tools_work(file: Path) -> None:
    """A model call that has ended is not paid twice because a slow tool was cut."""
    tools = Tools()
    async with opened(file, ScriptedModel([calls(("echo", "wait"))]), tools=tools) as here:
        run_id = await here.ask()
        await until(lambda: tools.at_once, "a tool at work")

        async def is_kept() -> bool:
            steps = await here.store.journals.list_steps(USER, run_id)
            return any(step.leaf == "llm-call" and step.output for step in steps)

        await until(is_kept, "the answer in the journal")
        await here.agency.engine.shutdown(0)
    tools.gate.set()
    then = ScriptedModel(["Done."])
    async with opened(file, then, tools=tools) as here:
        assert (await here.answer(run_id)).answer == "Done."
    assert len(then.requests) == 1


async def test_a_model_call_that_was_cut_is_made_again(file: Path) -> None:
    """Whoever follows is told what to drop; what the cut call may have cost counts everywhere."""
    async with wired(hangs("Half an ", "answer"), says("A whole ", "answer.")) as (model, server):
        async with opened(file, model) as here:
            run_id = await here.ask()
            seen = await here.seen(run_id, "content", 2)
            await here.agency.engine.shutdown(0)
        assert text_of(seen) == "Half an answer"
        assert all(SEQ_PER_ATTEMPT < chunk.seq < 2 * SEQ_PER_ATTEMPT for chunk in seen)
        async with opened(file, model) as here:
            rest = await here.chunks(run_id, after=seen[-1].seq)

            assert kinds(rest) == ["restart", "content", "done"]
            assert text_of(kept_of(seen, rest)) == ""
            assert text_of(rest) == "A whole answer."
            assert all(2 * SEQ_PER_ATTEMPT < chunk.seq < 3 * SEQ_PER_ATTEMPT for chunk in rest)
            cut, whole = await here.records()
            assert (cut.estimated, whole.estimated) == (True, False)
            assert cut.input_tokens + cut.output_tokens > 0
            used = sum(each.input_tokens + each.output_tokens for each in (cut, whole))
            (listed,) = await here.agency.runs.list(USER)
            assert (await here.answer(run_id)).tokens_used == listed.tokens == used
            said = await here.store.runs.messages(USER, run_id)
            assert [message.content for message in said] == ["Why?", "A whole answer."]
        assert len(server.asked) == 2
        assert server.asked[0].body == server.asked[1].body


def kept_of(seen: list[StreamChunk], rest: list[StreamChunk]) -> list[StreamChunk]:
    """What a client keeps of what it has seen, by the restart that came then."""
    (restart,) = bodies(rest, "restart")
    return [chunk for chunk in seen if chunk.seq <= restart["discard_after"]]


async def test_finished_steps_are_shown_again_and_not_done_again(file: Path) -> None:
    """Of three rounds the first two had ended: the third begins anew, the rest is as it was."""
    tools = Tools()
    rounds = [calls(("echo", "1"), text="One."), calls(("keyed", "2")), calls(("once", "wait"))]
    first = ScriptedModel(rounds)
    async with opened(file, first, tools=tools) as here:
        run_id = await here.ask()
        await until(lambda: tools.at_once, "a tool at work")
        before = await here.seen(run_id, "tool_call", 3)
        await here.agency.engine.shutdown(0)
    then = ScriptedModel(["Done."])
    async with opened(file, then, tools=tools) as here:
        chunks = await here.chunks(run_id)
        answer = await here.answer(run_id)

    assert [made.name for made in tools.made] == ["echo", "keyed", "once"]
    assert len(first.requests) == 3
    restart = next(chunk for chunk in chunks if chunk.as_json()["type"] == "restart")
    kept = [chunk for chunk in before if chunk.seq <= restart.as_json()["discard_after"]]
    assert chunks[: len(kept)] == kept
    assert [call.status for call in answer.tool_calls] == ["success", "success", "error"]
    assert (
        then.requests[0].messages[: len(first.requests[2].messages)] == first.requests[2].messages
    )


async def test_a_run_may_be_resumed_again_and_again(file: Path) -> None:
    """Each attempt begins its own million; the exchange is saved once."""
    tools = Tools()
    async with opened(file, ScriptedModel([calls(("keyed", "wait 1"))]), tools=tools) as here:
        run_id = await left_at_work(here)
    for _ in range(2):
        async with opened(file, ScriptedModel([]), tools=tools) as here:
            await until(lambda: tools.at_once, "the tool at work again")
            await here.agency.engine.shutdown(0)
    tools.gate.set()
    async with opened(file, ScriptedModel(["Done."]), tools=tools) as here:
        chunks = await here.chunks(run_id)
        run = await here.run(run_id)

        assert (run.attempt, run.status) == (4, RunStatus.SUCCEEDED)
        assert {chunk.seq // SEQ_PER_ATTEMPT for chunk in chunks} <= {1, 2, 3, 4}
        assert chunks[-1].seq // SEQ_PER_ATTEMPT == 4
        assert len(await here.store.runs.messages(USER, run_id)) == 2
    assert len({made.context.key for made in tools.made}) == 1


async def test_chunks_are_replayed_after_any_place(file: Path) -> None:
    """Whoever saw the chunks up to some place gets exactly the rest of a run that has ended."""
    model = ScriptedModel([calls(("echo", "1"), text="One two."), "Three four five."])
    async with opened(file, model) as here:
        run_id = await here.ask()
        chunks = await here.chunks(run_id)
        for place in range(len(chunks)):
            after = chunks[place].seq
            assert await here.chunks(run_id, after=after) == chunks[place + 1 :]


async def test_a_late_follower_is_told_what_to_drop(file: Path) -> None:
    """Who comes back after a resumed run has ended still learns what was said in vain."""
    async with wired(hangs("Half an ", "answer"), says("A whole answer.")) as (model, _):
        async with opened(file, model) as here:
            run_id = await here.ask()
            seen = await here.seen(run_id, "content", 1)
            await here.agency.engine.shutdown(0)
        async with opened(file, model) as here:
            await here.ended(run_id)
            rest = await here.chunks(run_id, after=seen[-1].seq)

            assert kinds(rest) == ["restart", "content", "done"]
            assert text_of(kept_of(seen, rest)) == ""


async def test_a_follower_elsewhere_gets_every_chunk(file: Path) -> None:
    """A follower in another process sees the chunks of parallel tools, whichever ends first."""
    model = ScriptedModel([calls(("keyed", "wait"), ("keyed", "quick")), "Done."])
    async with (
        opened(file, model) as here,
        opened(file, ScriptedModel([]), serves=False) as elsewhere,
    ):
        run_id = await here.ask()
        following = asyncio.create_task(elsewhere.chunks(run_id))

        async def is_kept() -> bool:
            steps = await here.store.journals.list_steps(USER, run_id)
            return any(step.leaf == "tools.execute" and step.output for step in steps)

        await until(is_kept, "the quick one in the journal")
        await asyncio.sleep(1)  # the follower looks several times meanwhile
        here.tools.gate.set()
        await here.answer(run_id)
        found = await following

        assert [chunk.seq for chunk in found] == sorted({chunk.seq for chunk in found})
        assert len(bodies(found, "tool_call")) == len(bodies(found, "tool_result")) == 2


async def test_a_zombie_cannot_write(file: Path) -> None:
    """A process that was taken for dead goes on: nothing of what it does is kept."""
    tools, others = Tools(), Tools()
    async with opened(
        file, ScriptedModel([calls(("keyed", "wait")), "Zombie."]), tools=tools
    ) as dead:
        run_id = await dead.ask()
        await until(lambda: tools.at_once, "a tool at work")
        await asyncio.to_thread(taken_for_dead, file)
        others.gate.set()
        async with opened(file, ScriptedModel(["Alive."]), tools=others) as alive:
            assert (await alive.answer(run_id)).answer == "Alive."
            tools.gate.set()
            await until(lambda: dead.agency.engine.find_feed(run_id) is None, "the zombie's end")

            said = await alive.store.runs.messages(USER, run_id)
            assert [message.content for message in said] == ["Why?", "Alive."]
            assert (await alive.run(run_id)).attempt == 2


def taken_for_dead(file: Path) -> None:
    """Let runs belong to a process that is no more."""
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE runs SET owner = 'oak:1:00000000' WHERE owner IS NOT NULL")


async def test_time_in_which_nobody_drove_does_not_count(file: Path) -> None:
    """A run that lay for an hour has the time that it had left."""
    tools = Tools()
    async with opened(file, ScriptedModel([calls(("once", "wait"))]), tools=tools) as here:
        run_id = await left_at_work(here)
    aged(file, 3600)
    async with opened(file, ScriptedModel(["Done."]), tools=tools) as here:
        chunks = await here.chunks(run_id)

    assert text_of(chunks) == "Done."
    assert not bodies(chunks, "system")


async def test_time_in_a_queue_does_not_count(file: Path, clock: Clock) -> None:
    """A run that waited for an hour in its lane has all its time, also when it is resumed."""
    tools = Tools()
    async with opened(file, ScriptedModel([calls(("once", "wait"))]), tools=tools) as here:
        run_id = await left_at_work(here)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE messages SET created_at = created_at - 3600")
        connection.execute("UPDATE runs SET created_at = created_at - 3600")
    model = ScriptedModel([calls(("echo", "wait")), "Done."])
    async with opened(file, model, tools=tools) as here:
        await until(lambda: tools.of("echo"), "the next tool")
        clock.advance(1.5)  # more than a run has that has no time left
        tools.gate.set()
        chunks = await here.chunks(run_id)

    assert text_of(chunks) == "Done."


def aged(file: Path, seconds: float) -> None:
    """Let all that is in a store have happened so much earlier."""
    with closing(sqlite3.connect(file)) as connection, connection:
        for table, columns in (
            ("runs", ("created_at", "started_at")),
            ("messages", ("created_at",)),
            ("steps", ("started_at", "ended_at")),
        ):
            changes = ", ".join(f"{column} = {column} - {seconds}" for column in columns)
            connection.execute(f"UPDATE {table} SET {changes}")  # noqa: S608
        for rowid, payload in connection.execute("SELECT rowid, payload FROM steps").fetchall():
            left = json.loads(payload) if payload else {}
            state = left.get("writes", {}).get("state")
            if state:
                state["start_time"] -= seconds
                kept = json.dumps(left)
                connection.execute("UPDATE steps SET payload = ? WHERE rowid = ?", (kept, rowid))


async def test_an_effect_that_would_be_another_ends_the_run(file: Path) -> None:
    """A once-step that comes again with another request is an error of the run, not a retry."""
    tools = Tools()
    first = ScriptedModel([calls(("once", "wait this"))], name="first")
    async with opened(file, first, tools=tools) as here:
        run_id = await left_at_work(here)
    # The configured model is another one by now, and asks for something else.
    other = ScriptedModel([calls(("once", "wait that"))] * 9, name="other")
    async with opened(file, other, tools=tools) as here:
        run = await here.ended(run_id)

        assert run.status is RunStatus.FAILED
        assert run.error
    assert len(tools.of("once")) == 1


async def test_a_run_keeps_its_tree_and_prompts(file: Path, tmp_path: Path) -> None:
    """What is changed between two attempts is for later runs."""
    tools = Tools()
    prompts = plain_prompts(tmp_path / "prompts", "The old prompt.")
    first = ScriptedModel([calls(("once", "wait"))])
    async with opened(file, first, tools=tools, prompts=prompts) as here:
        run_id = await left_at_work(here)
    plain_prompts(prompts, "The new prompt.")
    then = ScriptedModel(["Resumed.", "Asked anew."])
    capped = edited((":max-iterations (blackboard :max_iterations)", ":max-iterations 1"))
    async with opened(file, then, tools=tools, prompts=prompts, tree=capped) as here:
        assert (await here.answer(run_id)).answer == "Resumed."
        await here.answered("And now?")

    assert [each.messages[0].text for each in then.requests] == [
        "The old prompt.",
        "The new prompt.",
    ]


async def test_a_stored_tree_that_no_longer_loads_ends_the_run(file: Path) -> None:
    """The error names the leaf that is missing, and the next question uses today's tree."""
    async with opened(file, ScriptedModel([calls(("once", "wait"))])) as here:
        run_id = await left_at_work(here)
    with closing(sqlite3.connect(file)) as connection, connection:
        (content,) = connection.execute("SELECT content FROM pins").fetchone()
        old = content.replace(b"tools.request_approval", b"tools.ask_leave")
        assert old != content
        connection.execute("UPDATE pins SET content = ?", (old,))
    async with opened(file, ScriptedModel(["Today's answer."])) as here:
        run = await here.ended(run_id)
        assert run.status is RunStatus.FAILED
        assert run.error is not None
        assert run.error.code == "tree_invalid"
        assert run.error.message == (
            "the run cannot be resumed: the tree it started with does not load in this version of "
            "Dodona: no leaf is registered as 'tools.ask_leave'."
        )
        assert run.error.hint == "Ask the question again."
        assert (await here.answered("And now?")).answer == "Today's answer."


async def test_pins_are_kept_though_the_first_attempt_came_to_nothing(file: Path) -> None:
    """A run that died before its first step keeps what the next attempt began with."""
    tools = Tools()
    stuck = Shelf([ScriptedModel([])], gate=asyncio.Event())
    async with opened(file, shelf=stuck, tools=tools) as here:
        run_id = await here.ask()
        await until(lambda: stuck.asked, "a run that begins")
        await here.agency.engine.shutdown(0)
    async with opened(file, ScriptedModel([calls(("once", "wait"))]), tools=tools) as here:
        await until(lambda: tools.at_once, "a tool at work")
        assert (await here.run(run_id)).pins_hash is not None
        await here.agency.engine.shutdown(0)
    capped = edited((":max-iterations (blackboard :max_iterations)", ":max-iterations 1"))
    async with opened(file, ScriptedModel(["Done."]), tools=tools, tree=capped) as here:
        assert (await here.answer(run_id)).answer == "Done."


async def test_who_waits_for_an_answer_is_not_told_that_it_was_cancelled(file: Path) -> None:
    """When the process leaves a run, whoever waits learns that it goes on."""
    async with opened(file, ScriptedModel([calls(("once", "wait"))])) as here:
        run_id = await here.ask()
        waiting = asyncio.create_task(here.answer(run_id))
        await until(lambda: here.tools.at_once, "a tool at work")
        await here.agency.engine.shutdown(0)
        with pytest.raises(Exception) as raised:  # noqa: PT011
            await waiting

    assert not isinstance(raised.value, RunFenced)
    assert getattr(raised.value, "code", "") != "cancelled"
