"""The end of a run: the reason is the same in all interfaces, and also after a restart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dodona.core.domain.conversations.conversation import RunStatus
from dodona.core.errors import Cancelled, ProviderError, ProviderErrorKind
from dodona.core.events import BUDGET_TIMEOUT_EXCEEDED, SESSION_END
from dodona.models.scripted.model import ScriptedModel
from tests.agent.opening import (
    USER,
    Opened,
    Tools,
    bodies,
    calls,
    edited,
    opened,
    text_of,
    until,
    untimed,
)
from tests.agent.wire import hangs, says, wired
from tests.clock import Clock

SAME = calls(("echo", "same"))
FAILING = [calls(("fail", f"{number}")) for number in range(3)]
LIMITED = {
    "limit": "output tokens",
    "limit_value": 20,
    "advice": "Raise max_tokens in the request.",
}
CREDIT = ProviderError("no credit.", kind=ProviderErrorKind.REJECTED, provider="scripted")


@dataclass(frozen=True)
class Case:
    """A run that ends for a reason, and the `system` chunk that says so."""

    reason: str
    script: list[Any]
    finish: str = "length"
    settings: Mapping[str, int] = field(default_factory=dict[str, int])
    options: Mapping[str, int] = field(default_factory=dict[str, int])
    system_type: str = "limit_reached"


CASES = (
    Case("finished", ["Yes."], finish="stop", system_type=""),
    Case("max_iterations", [SAME], settings={"max_iterations": 1}),
    Case(
        "token_budget", [calls(("echo", "1"), text="word " * 1200)], settings={"token_budget": 1000}
    ),
    Case("no_progress", [SAME] * 4, system_type="no_progress"),
    Case("error_limit", FAILING, system_type="error_limit"),
    Case("max_tokens", [calls(("echo", "1"), text="word " * 25)], options={"max_tokens": 20}),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reason)
async def test_the_reason_is_in_every_interface(file: Path, case: Case) -> None:
    """`done`, the answer, the run, the list of runs and `session.end`; also after a restart."""
    model = ScriptedModel([*case.script, "Never said."])
    async with opened(file, model) as here:
        await here.set(**case.settings)
        run_id = await here.ask(**case.options)
        chunks = await here.chunks(run_id)
        (event,) = here.told(SESSION_END)
        await check_end(here, run_id, case.reason, case.finish)

    expected = {"finish": case.finish, "termination_reason": case.reason}
    assert expected.items() <= bodies(chunks, "done")[0].items()
    assert expected.items() <= event.payload.items()
    shown = [body["system_type"] for body in bodies(chunks, "system")]
    assert shown[-1:] == [case.system_type][: len(shown)]
    async with opened(file, ScriptedModel([])) as here:
        await check_end(here, run_id, case.reason, case.finish)
        assert await here.chunks(run_id) == chunks


async def check_end(here: Opened, run_id: int, reason: str, finish: str | None) -> None:
    """The run and the list have both; so has the answer, if there is one."""
    details = await here.agency.runs.show(USER, run_id)
    (listed,) = await here.agency.runs.list(USER)
    for each in (details, listed):
        assert (each.finish, each.termination_reason) == (finish, reason)
    if finish is not None:
        answer = await here.answer(run_id)
        assert (answer.finish, answer.termination_reason) == (finish, reason)


async def test_an_error_is_a_reason(file: Path) -> None:
    """A run that fails has no `finish`; the text before the error is its saved answer."""
    model = ScriptedModel([calls(("echo", "1"), text="Let me see."), CREDIT])
    async with opened(file, model) as here:
        run_id = await here.ask()
        await here.chunks(run_id)

        await check_end(here, run_id, "error", None)
        (event,) = here.told(SESSION_END)
        assert event.payload["termination_reason"] == "error"


async def test_a_run_without_a_tree_has_a_reason(file: Path) -> None:
    """It could not start."""
    async with opened(file, ScriptedModel([])) as here:
        run_id = await here.ask(model="nobody")
        await here.chunks(run_id)
        await check_end(here, run_id, "error", None)


async def test_the_text_of_a_run_that_cannot_resume_is_kept(file: Path) -> None:
    """Its model is gone after a crash; clients have the text of the first attempt."""
    tools = Tools()
    gone = ScriptedModel([calls(("once", "wait"), text="Let me see.")], name="gone")
    async with opened(file, ScriptedModel([]), gone, tools=tools) as here:
        run_id = await here.ask(model="gone")
        await until(lambda: tools.at_once, "a tool at work")
        await here.agency.engine.shutdown(0)
    async with opened(file, ScriptedModel([]), tools=tools) as here:
        chunks = await here.chunks(run_id)
        await check_end(here, run_id, "error", None)
        (_, answer) = await here.store.runs.messages(USER, run_id)

    assert chunks[-1].as_json()["error"]["code"] == "not_found"
    assert answer.content == text_of(chunks) == "Let me see."


@pytest.mark.parametrize("is_queued", [False, True])
async def test_cancelling_is_a_reason(file: Path, *, is_queued: bool) -> None:
    """Also of a run that has not started."""
    async with opened(file, ScriptedModel([calls(("echo", "wait"))])) as here:
        first = await here.ask()
        await until(lambda: here.tools.at_once, "a tool at work")
        run_id = await here.ask() if is_queued else first
        await here.oracle.cancel(USER, run_id)
        with pytest.raises(Cancelled):
            await here.answer(run_id)
        details = await here.agency.runs.show(USER, run_id)
        assert (details.finish, details.termination_reason) == (None, "cancelled")


async def test_an_answer_that_the_provider_cut(file: Path) -> None:
    """The model has used max_tokens: a chunk says so, whether or not there is any text."""
    async with (
        wired(says("The oa", usage=(9, 20), finish="length"), says(finish="length")) as (model, _),
        opened(file, model) as here,
    ):
        run_id = await here.ask(max_tokens=20)
        chunks = await here.chunks(run_id)

        (shown,) = bodies(chunks, "system")
        assert shown["system_type"] == "limit_reached"
        assert shown["metadata"] == {**LIMITED, "current_value": 20}
        await check_end(here, run_id, "max_tokens", "length")
        assert (await here.answer(run_id)).answer == text_of(chunks) == "The oa"
        empty = await here.chunks(await here.ask(max_tokens=20))
        assert bodies(empty, "system")[0]["metadata"]["limit_value"] == 20


async def test_the_reason_survives_a_crash(file: Path) -> None:
    """The last turn was cut by a crash; the process that resumes the run ends it."""
    tools = Tools()
    first = ScriptedModel([calls(("echo", "1")), calls(("once", "wait"), text="Let me see.")])
    async with opened(file, first, tools=tools) as here:
        await here.set(max_iterations=2)
        run_id = await here.ask()
        await until(lambda: tools.at_once, "a tool at work")
        before = bodies(await here.seen(run_id, "system"), "system")
        await here.agency.engine.shutdown(0)
    async with opened(file, ScriptedModel([]), tools=tools) as here:
        chunks = await here.chunks(run_id)

        await check_end(here, run_id, "max_iterations", "length")
        assert [each["system_type"] for each in bodies(chunks, "system")] == [
            "limit_warning",
            "limit_reached",
        ]
        assert bodies(chunks, "system")[:1] == before, "it has its time of the first attempt"
        assert (await here.answer(run_id)).answer == text_of(chunks)
    assert text_of(chunks).startswith("Let me see.\n\nStopped at the limit of 2 turns.")


async def test_system_chunks_have_the_time_when_they_were_sent(file: Path, clock: Clock) -> None:
    """In ISO 8601; a stored run is replayed with the same times."""
    async with opened(file, ScriptedModel([SAME] * 2)) as here:
        await here.set(max_iterations=2)
        run_id = await here.ask()
        chunks = await here.chunks(run_id)
        clock.advance(100)
        again = await here.chunks(run_id)

    times = [each["timestamp"] for each in bodies(chunks, "system")]
    assert len(times) == 2
    assert all(each[10] == "T" and each.endswith("Z") for each in times)
    assert [each["timestamp"] for each in bodies(again, "system")] == times


# -- timeouts that the tree does not have --------------------------------------------------------

LONGER = ("(timeout in-time :seconds (blackboard :seconds_left)", "(timeout in-time :seconds 9000")
WITHOUT = ("(timeout in-time :seconds (blackboard :seconds_left)", "(sequence in-time")
SILENT = ('(action explain-end :fn "oracle.explain_end")', "(fail)")


@pytest.mark.parametrize("changes", [[LONGER], [WITHOUT], [WITHOUT, SILENT]])
async def test_the_runtime_ends_a_run_in_time(
    file: Path, clock: Clock, changes: list[tuple[str, str]]
) -> None:
    """timeout_seconds applies whatever the tree says, with the same end."""
    script = [calls(("echo", "1"), text="Let me see."), calls(("echo", "wait"))]
    async with opened(file, ScriptedModel(script), tree=edited(*changes)) as here:
        await here.set(timeout_seconds=10)
        run_id = await here.ask()
        await until(lambda: here.tools.at_once, "a tool at work")
        clock.advance(13)
        chunks = await here.chunks(run_id)

        (shown,) = bodies(chunks, "system")
        assert shown["system_type"] == "limit_reached"
        assert (shown["metadata"]["limit"], shown["metadata"]["limit_value"]) == ("seconds", 10)
        assert len(here.told(BUDGET_TIMEOUT_EXCEEDED)) == 1
        (event,) = here.told(SESSION_END)
        assert event.payload["termination_reason"] == "timeout"
        await check_end(here, run_id, "timeout", "length")
        assert (await here.answer(run_id)).answer == text_of(chunks)
        assert text_of(chunks).startswith("Let me see.\n\nStopped at the limit of 10 seconds.")
        assert (await here.run(run_id)).status is RunStatus.SUCCEEDED
        assert here.tools.at_once == 0
    async with opened(file, ScriptedModel([])) as here:
        assert await here.chunks(run_id) == chunks


async def test_a_model_that_hangs_ends_in_time(file: Path, clock: Clock) -> None:
    """What it has said is the answer."""
    async with (
        wired(hangs("Half an ", "answer")) as (model, _),
        opened(file, model, tree=untimed()) as here,
    ):
        await here.set(timeout_seconds=10)
        run_id = await here.ask()
        await here.said(run_id, "Half an answer")
        clock.advance(13)
        answer = await here.answer(run_id)

        assert (answer.answer, answer.termination_reason) == ("Half an answer", "timeout")
