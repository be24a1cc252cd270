"""What an agent hears of its events: notices at their points, kept or not, once, over crashes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from dodona.core.events import (
    AGENT_LOOP_DETECTED,
    AGENT_TURN_END,
    AGENT_TURN_START,
    QUERY_START,
    SELF_NOTIFY,
    SESSION_END,
    SESSION_RESUMED,
    TASK_CHECKPOINT,
)
from dodona.core.messages import AssistantText, ContextText, ToolCall, ToolResult
from dodona.core.ports.model import ModelRequest
from dodona.models.scripted.model import ScriptedModel
from dodona.tools import notify_self
from tests.agent.opening import USER, Opened, Tools, bodies, calls, opened, text_of, until


def told(request: ModelRequest) -> list[str]:
    """What the model was told beside its prompt, in order."""
    return [m.text for m in request.messages[1:] if isinstance(m, ContextText)]


def system(chunks: Any, kind: str) -> list[str]:
    return [b["system_message"] for b in bodies(chunks, "system") if b["system_type"] == kind]


def with_notes(here: Opened) -> None:
    notify_self.add(here.tools.registry, here.store.notices)


def note(**arguments: Any) -> AssistantText:
    return AssistantText("", (ToolCall("note-1", "notify_self", json.dumps(arguments)),))


async def test_failures_of_one_turn_are_one_notice(file: Path) -> None:
    """Three failures of a tool: one notice, in the next request and as a chunk, and kept."""
    failing = calls(("fail", "1"), ("fail", "2"), ("fail", "3"), ("echo", "4"))
    model = ScriptedModel([failing, "Done.", "Again."])
    async with opened(file, model) as here:
        await here.set(max_parallel_tools=4)
        chunks = await here.chunks(await here.ask())

        (shown,) = system(chunks, "tool_failure")
        assert shown == "fail failed 3 times."
        noticed = [text for text in told(model.requests[1]) if text.startswith("fail failed")]
        assert len(noticed) == 1
        assert "3 times" in noticed[0]
        # It stays with the exchange: the next question's model reads it in its place.
        await here.answered("And now?")
        assert sum("fail failed 3 times" in text for text in told(model.requests[2])) == 1


async def test_a_single_failure_needs_no_notice(file: Path) -> None:
    """Its result says all there is to say."""
    model = ScriptedModel([calls(("fail", "1")), "Done."])
    async with opened(file, model) as here:
        chunks = await here.chunks(await here.ask())
        assert bodies(chunks, "system") == []
        assert isinstance(model.requests[1].messages[-1], ToolResult)


async def test_limits_are_told_and_not_kept(file: Path) -> None:
    """A warning is in the request of its turn, and in no later conversation."""
    model = ScriptedModel([*(calls(("echo", f"{n}")) for n in range(2)), "Done.", "Again."])
    async with opened(file, model) as here:
        await here.set(max_iterations=3)
        await here.answered()
        assert any("turns are used" in text for text in told(model.requests[1]))
        await here.answered("And now?")
        assert not any("turns are used" in text for text in told(model.requests[3]))


async def test_a_loop_is_told_once(file: Path) -> None:
    """The same calls again and again: a notice in the next request, one event."""
    same = [calls(("echo", "1"), ("echo", "2")), calls(("echo", "2"), ("echo", "1"))]
    model = ScriptedModel([*same, *same, calls(("echo", "9")), "Done."])
    async with opened(file, model) as here:
        chunks = await here.chunks(await here.ask())
        assert len(system(chunks, "loop_detected")) == 1
        assert len(here.told(AGENT_LOOP_DETECTED)) == 1
        assert any("You repeat the same calls" in text for text in told(model.requests[3]))


async def test_hooks_come_once_each(file: Path) -> None:
    """A run with one round of tools: two turns, each with a beginning and an end."""
    model = ScriptedModel([calls(("echo", "1")), "Done."])
    async with opened(file, model) as here:
        await here.answered()
        await until(lambda: here.told(SESSION_END), "the end")
        kinds = [QUERY_START, AGENT_TURN_START, AGENT_TURN_END, SESSION_END]
        assert [len(here.told(kind)) for kind in kinds] == [1, 2, 2, 1]
        assert here.told(SESSION_RESUMED) == []


async def test_a_long_task_looks_back(file: Path) -> None:
    """Every ten turns, as long as its limit is not near."""
    model = ScriptedModel([*(calls(("echo", f"{n}")) for n in range(11)), "Done."])
    async with opened(file, model) as here:
        await here.set(max_iterations=30)
        chunks = await here.chunks(await here.ask())
        assert len(here.told(TASK_CHECKPOINT)) == 1
        (shown,) = system(chunks, "task_checkpoint")
        assert shown.startswith("10 turns so far.")


async def test_an_agent_tells_itself(file: Path) -> None:
    """A note comes before the next turn, as an event and in the request."""
    model = ScriptedModel([note(message="Check the oak."), "Done."])
    async with opened(file, model) as here:
        with_notes(here)
        chunks = await here.chunks(await here.ask())
        assert system(chunks, "self_notify") == ["Check the oak."]
        assert "Check the oak." in told(model.requests[1])


async def test_a_note_for_when_a_tool_runs(file: Path) -> None:
    """It waits until then, and comes once."""
    model = ScriptedModel(
        [note(message="Mind the echo.", deliver_at="tool:echo"), calls(("plan", "x")),
         calls(("echo", "x")), calls(("echo", "y")), "Done."]
    )  # fmt: skip
    async with opened(file, model) as here:
        with_notes(here)
        chunks = await here.chunks(await here.ask())
        assert system(chunks, "self_notify") == ["Mind the echo."]
        heard = ["Mind the echo." in told(request) for request in model.requests]
        assert heard == [False, False, False, True, True]
        (kept,) = await here.agency.notices.list(USER)
        assert kept.delivered_at is not None


async def test_a_note_for_the_next_session_outlives_the_process(file: Path) -> None:
    """It is told with the next question, after a restart, and never again."""
    first = ScriptedModel([note(message="Ask about elms.", persist_cross_session=True), "Noted."])
    async with opened(file, first) as here:
        with_notes(here)
        chunks = await here.chunks(await here.ask())
        assert system(chunks, "self_notify") == []
    then = ScriptedModel(["Elms.", "Again."])
    async with opened(file, then) as here:
        chunks = await here.chunks(await here.ask("Hello", new=True))
        assert system(chunks, "self_notify") == ["Ask about elms."]
        assert "Ask about elms." in told(then.requests[0])
        chunks = await here.chunks(await here.ask("And now?", new=True))
        assert system(chunks, "self_notify") == []


async def test_a_note_for_a_time_comes_after_it(file: Path) -> None:
    """Not before, whatever happens; then with the next question of the project."""
    model = ScriptedModel([note(message="Late.", deliver_at="+3s"), "Done.", "Now."])
    async with opened(file, model) as here:
        with_notes(here)
        chunks = await here.chunks(await here.ask())
        (kept,) = await here.store.notices.list(USER, limit=5)
        due = kept.due.at
        assert due is not None
        if time.time() < due:  # else the machine was too slow to tell
            assert system(chunks, "self_notify") == []
        await until(lambda: time.time() > due, "the moment")
        asked = await here.chunks(await here.ask("Anything?", new=True))
        heard = system(chunks, "self_notify") + system(asked, "self_notify")
        assert heard == ["Late."]


async def test_a_wrong_moment_is_told(file: Path) -> None:
    """The model reads how to write it."""
    model = ScriptedModel([note(message="x", deliver_at="tomorrow"), "Done."])
    async with opened(file, model) as here:
        with_notes(here)
        await here.answered()
        result = model.requests[1].messages[-1]
        assert result.text == (
            "'tomorrow' is not a valid delivery time. Write '2026-01-31T09:00:00Z', '+10m', "
            "'tool:NAME', 'when:EXPRESSION' or 'next_session'."
        )


async def test_a_silenced_subscriber_says_nothing(file: Path) -> None:
    """At once, in a run that goes on too; what is core stays."""
    tools = Tools()
    model = ScriptedModel(
        [calls(("echo", "wait")), note(message="Quiet?"), calls(("echo", "x")), "Done."]
    )
    async with opened(file, model, tools=tools) as here:
        with_notes(here)
        run_id = await here.ask()
        await until(lambda: tools.at_once, "a tool at work")
        await here.agency.notices.set_subscriber_enabled(USER, "self_notify", is_enabled=False)
        tools.gate.set()
        chunks = await here.chunks(run_id)
        assert system(chunks, "self_notify") == []
        assert here.told(SELF_NOTIFY) == []  # it was heard by the run alone
        assert text_of(chunks) == "Done."


async def test_what_was_told_before_a_crash_is_not_told_again(file: Path) -> None:
    """A resumed run goes on with what it had not told yet."""
    tools = Tools()
    first = ScriptedModel([note(message="Once only."), calls(("keyed", "wait"))])
    async with opened(file, first, tools=tools) as here:
        with_notes(here)
        run_id = await here.ask()
        await until(lambda: tools.at_once, "a tool at work")
        await here.agency.engine.shutdown(0)
    then = ScriptedModel(["Done."])
    again = Tools()
    async with opened(file, then, tools=again) as here:
        with_notes(here)
        again.gate.set()
        chunks = await here.chunks(run_id)
        assert system(chunks, "self_notify") == ["Once only."]
        assert told(then.requests[0]).count("Once only.") == 1
