"""The engine: it takes questions in, drives what is its own, and leaves without losing anything."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from dodona.agent.run.engine import ORPHAN_POLL_SECONDS
from dodona.core.domain.api_tokens import ApiToken
from dodona.core.domain.conversations.conversation import RunStatus
from dodona.core.errors import DodonaError, StoreError
from dodona.core.events import QUERY_START, SESSION_END
from dodona.models.scripted.model import ScriptedModel
from dodona.trees import leaf
from tests.agent.opening import USER, Tools, bodies, calls, edited, opened, text_of, until
from tests.clock import Clock


async def test_leaving_lets_runs_finish(file: Path) -> None:
    """What ends within the patience is not left; nothing waits in vain."""
    async with opened(file, ScriptedModel([calls(("echo", "wait")), "Done."])) as here:
        run_id = await here.ask()
        await until(lambda: here.tools.at_once, "a tool at work")
        leaving = asyncio.create_task(here.agency.engine.shutdown(30))
        await until(lambda: here.agency.engine.is_shutting_down, "the leave")
        here.tools.gate.set()

        assert await leaving == 0
        assert (await here.run(run_id)).status is RunStatus.SUCCEEDED


async def test_leaving_refuses_new_questions(file: Path) -> None:
    """They are refused, not lost: whoever asks is told to come back."""
    async with opened(file, ScriptedModel([])) as here:
        await here.agency.engine.shutdown(0)
        with pytest.raises(StoreError, match="shutting down"):
            await here.ask()


async def test_what_waits_is_left_to_others(file: Path) -> None:
    """A queued question is answered by the next process, after the one before it."""
    tools = Tools()
    async with opened(file, ScriptedModel([calls(("once", "wait"))]), tools=tools) as here:
        first, second = await here.ask("Q1"), await here.ask("Q2")
        await until(lambda: tools.at_once, "a tool at work")
        await here.agency.engine.shutdown(0)
    async with opened(file, ScriptedModel(["One.", "Two."])) as here:
        assert (await here.answer(first)).answer == "One."
        assert (await here.answer(second)).answer == "Two."


async def test_followers_learn_that_the_process_leaves(file: Path) -> None:
    """Their stream ends without a last chunk: they may follow the run elsewhere."""
    async with opened(file, ScriptedModel([calls(("once", "wait"), text="Let me see.")])) as here:
        run_id = await here.ask()
        queued = await here.ask("Q2")
        following = [asyncio.create_task(here.chunks(each)) for each in (run_id, queued)]
        await until(lambda: here.tools.at_once, "a tool at work")
        await here.agency.engine.shutdown(0)
        driven, waiting = [await each for each in following]

        assert text_of(driven) == "Let me see."
        assert not any(chunk.is_last for chunk in [*driven, *waiting])


async def test_a_run_that_is_released_before_it_begins_can_be_resumed(file: Path) -> None:
    """Its readers are not left waiting, it is not active any more, and the next process answers."""
    async with opened(file, ScriptedModel([])) as here:
        run_id = await here.ask()
        here.agency.engine._active_runs[run_id].release()
        assert await here.chunks(run_id) == []
        assert here.agency.engine.active_run_count == 0
    async with opened(file, ScriptedModel(["Yes."])) as here:
        assert (await here.answer(run_id)).answer == "Yes."


async def test_questions_and_leaving_may_cross(file: Path) -> None:
    """Whatever was accepted while the process left is answered by the next one."""
    count = 30
    accepted: list[tuple[str, int]] = []

    async with opened(file, ScriptedModel(["Yes."] * count)) as here:

        async def ask(user: str) -> None:
            try:
                accepted.append((user, await here.ask(user=user)))
            except StoreError:
                return

        asking = [asyncio.create_task(ask(f"user-{number}")) for number in range(count)]
        await until(lambda: accepted, "the first question")
        await here.agency.engine.shutdown(0)
        await asyncio.gather(*asking)
    async with opened(file, ScriptedModel(["Yes."] * count)) as here:
        for user, run_id in accepted:
            assert (await here.answer(run_id, user=user)).answer == "Yes."


async def test_a_question_that_is_queued_while_the_process_leaves_wakes_nobody(file: Path) -> None:
    """It waits for the next process; in this one nothing goes on that nobody waits for."""
    async with opened(file, ScriptedModel([calls(("once", "wait"))])) as here:
        first = await here.ask("Q1")
        await until(lambda: here.tools.at_once, "a tool at work")
        asking = [asyncio.create_task(here.ask(f"Q{number}")) for number in range(20)]
        await asyncio.sleep(0)  # all of them are on their way to the store
        await here.agency.engine.shutdown(0)
        found = await asyncio.gather(*asking, return_exceptions=True)
        queued = [each for each in found if isinstance(each, int)]

        looking = here.agency.engine._poll_task
        assert looking is None or looking.done()
        assert all(isinstance(each, int | StoreError) for each in found)
    async with opened(file, ScriptedModel(["Yes."] * 21)) as here:
        for run_id in [first, *queued]:
            assert (await here.answer(run_id)).answer == "Yes."


async def test_one_that_does_not_serve_leaves_others_runs_alone(file: Path) -> None:
    """It drives what is asked of it, and nothing that a dead process has left."""
    async with opened(file, ScriptedModel([calls(("once", "wait"))])) as here:
        run_id = await here.ask()
        await until(lambda: here.tools.at_once, "a tool at work")
        await here.agency.engine.shutdown(0)
    async with opened(file, ScriptedModel(["Yes."]), serves=False) as here:
        assert (await here.answered(user="bob")).answer == "Yes."
        await asyncio.sleep(1)  # time enough to look around
        assert (await here.run(run_id)).attempt == 1


async def test_one_that_does_not_serve_answers_after_what_was_left(file: Path) -> None:
    """In the same lane it must: the run that was left comes first."""
    async with opened(file, ScriptedModel([calls(("once", "wait"))])) as here:
        run_id = await here.ask("Q1")
        await until(lambda: here.tools.at_once, "a tool at work")
        await here.agency.engine.shutdown(0)
    async with opened(file, ScriptedModel(["One.", "Two."]), serves=False) as here:
        assert (await here.answered("Q2")).answer == "Two."
        assert (await here.answer(run_id)).answer == "One."


@leaf("test-bug")
def bug(bb: object) -> None:
    """Raise an unexpected error."""
    del bb
    raise ZeroDivisionError("a bug")


async def test_a_bug_in_a_leaf_ends_the_run_with_an_answer(file: Path) -> None:
    """The tree fails, what was said is kept, and the next question is answered."""
    model = ScriptedModel(["The oak.", "Yes."])
    broken = edited(
        ('(action save-exchange :fn "oracle.save_exchange")', "(action test-bug)"), leaves=[bug]
    )
    async with opened(file, model, tree=broken) as here:
        run_id = await here.ask()
        chunks = await here.chunks(run_id)

        error = chunks[-1].as_json()["error"]
        assert error["code"] in ("tree_failed", "internal")
        assert error["message"]
        with pytest.raises(DodonaError):
            await here.answer(run_id)
        (_, said) = await here.store.runs.messages(USER, run_id)
        assert said.content == "The oak."
        assert (await here.run(run_id)).status is RunStatus.FAILED


async def test_a_bug_outside_the_tree_ends_the_run(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever waits is told that it is Dodona's fault; the log has the traceback."""

    class Buggy:
        asked = False

        async def choose(
            self, name: str = "", *, agent: str = "", token: ApiToken | None = None
        ) -> object:
            raise ZeroDivisionError(name)

    async with opened(file, shelf=Buggy()) as here:  # pyright: ignore[reportArgumentType]
        run_id = await here.ask()
        chunks = await here.chunks(run_id)

        assert chunks[-1].as_json()["error"]["code"] == "internal"
        assert "ZeroDivisionError" in caplog.text
        with pytest.raises(DodonaError) as raised:
            await here.answer(run_id)
        assert raised.value.code == "internal"


async def test_a_store_that_cannot_be_written_ends_nothing(
    file: Path, caplog: pytest.LogCaptureFixture, clock: Clock
) -> None:
    """The run is left as it was and taken up when the store is well; the answer is saved once."""
    caplog.set_level(logging.CRITICAL)
    tools = Tools()
    model = ScriptedModel([calls(("echo", "wait")), "Done.", "Done.", "Done.", "Done."])
    async with opened(file, model, tools=tools) as here:
        run_id = await here.ask()
        await until(lambda: tools.at_once, "a tool at work")
        await asyncio.to_thread(_broken, file)
        tools.gate.set()
        chunks = await here.chunks(run_id)
        assert not bodies(chunks, "done")
        await asyncio.to_thread(_mended, file)
        clock.advance(ORPHAN_POLL_SECONDS)
        run = await here.ended(run_id)

        assert run.status is RunStatus.SUCCEEDED
        said = await here.store.runs.messages(USER, run_id)
        assert [message.content for message in said] == ["Why?", "Done."]


def _broken(file: Path) -> None:
    """From now on no run can be written."""
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(
            "CREATE TRIGGER broken BEFORE INSERT ON reservations "
            "BEGIN SELECT RAISE(ABORT, 'the disk is on fire'); END"
        )
        connection.execute(
            "CREATE TRIGGER broken_too BEFORE UPDATE ON runs "
            "BEGIN SELECT RAISE(ABORT, 'the disk is on fire'); END"
        )


def _mended(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("DROP TRIGGER broken")
        connection.execute("DROP TRIGGER broken_too")


async def test_a_run_tells_when_it_begins_and_ends(file: Path) -> None:
    """Events of its user: one start and one end, however it ends."""
    async with opened(file, ScriptedModel(["Yes."])) as here:
        run_id = await here.ask("What is it?")
        await here.answer(run_id)
        (start,), (end,) = here.told(QUERY_START), here.told(SESSION_END)

        assert start.payload["question"] == "What is it?"
        for event in (start, end):
            assert (event.payload["user_id"], event.payload["run_id"]) == (USER, run_id)
        assert end.payload["ended"] == "success"


async def test_a_crash_is_not_told_twice(file: Path) -> None:
    """What was told before it is not told again by the process that resumes."""
    tools = Tools()
    async with opened(file, ScriptedModel([calls(("once", "wait"))]), tools=tools) as here:
        run_id = await here.ask()
        await until(lambda: tools.at_once, "a tool at work")
        await here.agency.engine.shutdown(0)
    async with opened(file, ScriptedModel(["Done."]), tools=tools) as here:
        await here.answer(run_id)

        assert here.told(QUERY_START) == []
        assert len(here.told(SESSION_END)) == 1


async def test_a_command_starts_no_run_after_its_own(file: Path) -> None:
    """It ends then, and the run of another command would have to be resumed."""
    zero_tools, one_tools = Tools(), Tools()
    holding = [ScriptedModel([calls(("echo", "wait")), text]) for text in ("Zero.", "One.")]
    async with (
        opened(file, holding[0], tools=zero_tools, serves=False) as zero,
        opened(file, holding[1], tools=one_tools, serves=False) as one,
        opened(file, ScriptedModel(["Two."]), serves=False) as two,
    ):
        await zero.ask("Q0")
        await until(lambda: zero_tools.at_once, "a tool at work")
        first = await one.ask("Q1")
        zero_tools.gate.set()
        await until(lambda: one_tools.at_once, "the next run at work")
        second = await two.ask("Q2")
        one_tools.gate.set()
        assert (await one.answer(first)).answer == "One."
        await one.agency.engine.shutdown(0)
        assert (await two.answer(second)).answer == "Two."
        for run_id in (first, second):
            assert (await two.run(run_id)).attempt == 1
            assert bodies(await two.chunks(run_id), "restart") == []


async def test_a_command_starts_the_runs_before_its_own(file: Path) -> None:
    """Their processes may have died; otherwise its own run would wait forever."""
    tools = Tools()
    async with opened(file, ScriptedModel([calls(("once", "wait"))]), tools=tools) as here:
        first, second = await here.ask("Q1"), await here.ask("Q2")
        await until(lambda: tools.at_once, "a tool at work")
        await here.agency.engine.shutdown(0)
    model = ScriptedModel(["One.", "Two.", "Three."])
    async with opened(file, model, serves=False) as here:
        assert (await here.answered("Q3")).answer == "Three."
        assert [(await here.run(each)).attempt for each in (first, second)] == [2, 1]
