from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import pytest

from dodona.core.errors import AccessDenied, NotFound, StoreError, ToolFailed, ToolRetry
from dodona.core.messages import ToolCall, ToolSpec
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import (
    SourceReference,
    ToolCallResult,
    ToolCategory,
    ToolContext,
    ToolOutput,
)
from dodona.tools.call import MAX_RESULT_CHARS, MAX_SOURCES, call_tool
from dodona.tools.registry import ToolFunction, ToolRegistry

CONTEXT = ToolContext("ada", "oaks", "run-1/tools[0]")
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "default": 1}, "project_id": {"type": "string"}},
    "additionalProperties": False,
}


def registry(function: ToolFunction, **more: Any) -> ToolRegistry:
    tools = ToolRegistry()
    tools.tool(ToolSpec("work", "Works.", SCHEMA), category=ToolCategory.META, **more)(function)
    return tools


async def call(
    function: ToolFunction, arguments: str = "{}", *, name: str = "work", **more: Any
) -> ToolCallResult:
    tools = registry(function, **more)
    return await call_tool(tools, ToolCall("1", name, arguments), agent="oracle", context=CONTEXT)


def raising(error: BaseException) -> ToolFunction:
    async def work(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        raise error

    return work


def saying(text: str, *sources: SourceReference) -> ToolFunction:
    async def work(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        return ToolOutput(text, sources)

    return work


async def test_a_call_has_its_result() -> None:
    """With what it was called with, its sources, and the time it took."""
    seen: list[tuple[Mapping[str, Any], ToolContext]] = []

    async def work(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        seen.append((arguments, context))
        return ToolOutput("done", (SourceReference("a.md"),))

    outcome = await call(work, '{"n": 3}')
    assert seen == [({"n": 3, "project_id": "oaks"}, CONTEXT)]
    assert outcome.arguments == {"n": 3, "project_id": "oaks"}
    assert (outcome.result.call_id, outcome.result.name) == ("1", "work")
    assert (outcome.result.text, outcome.result.failed) == ("done", False)
    assert outcome.output.sources == (SourceReference("a.md"),)
    assert outcome.duration_ms >= 0


@pytest.mark.parametrize(
    ("name", "agent", "said"),
    [
        ("wrok", "oracle", "There is no tool 'wrok'. Did you mean 'work'? Available tools: work."),
        ("work", "librarian", "There is no tool 'work'. There are no tools."),
        ("x" * 10_000, "oracle", f"There is no tool '{'x' * 80}'. Available tools: work."),
    ],
)
async def test_a_tool_that_is_not_offered_does_not_exist(name: str, agent: str, said: str) -> None:
    """A model that knows its name from elsewhere cannot call it."""
    tools = registry(saying("done"))
    outcome = await call_tool(tools, ToolCall("1", name), agent=agent, context=CONTEXT)
    assert (outcome.result.text, outcome.result.failed) == (said, True)


async def test_arguments_that_do_not_fit_never_reach_the_tool() -> None:
    """The model reads what is wrong with them."""
    outcome = await call(raising(AssertionError("called")), '{"m": 3}')
    assert outcome.result.failed
    assert outcome.result.text == (
        "The arguments of work are invalid: there is no parameter 'm'. "
        "Parameters: n (integer, default 1)."
    )
    assert outcome.arguments == {}


@pytest.mark.parametrize("kind", [ToolFailed, ToolRetry, AccessDenied, NotFound])
async def test_what_a_tool_says_of_its_failure_is_passed_on(kind: type[ToolFailed]) -> None:
    """With the hint, and without a log entry: it is no fault of ours."""
    outcome = await call(raising(kind("no such oak.", hint="Try another.")))
    assert outcome.result.failed
    assert outcome.result.text == "no such oak. Try another."


@pytest.mark.parametrize(
    "error", [ValueError("/home/ada/.secret"), StoreError("/home/ada/x.db is locked."), OSError()]
)
async def test_any_other_error_is_for_the_log_only(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """The model learns that it failed; paths, values and tracebacks stay here."""
    with caplog.at_level(logging.ERROR):
        outcome = await call(raising(error))
    assert outcome.result.failed
    assert outcome.result.text == (
        "work failed: an error inside the tool. Repeating the call may not help."
    )
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[1] is error


async def test_a_tool_that_lies_about_what_it_returns_has_failed() -> None:
    """A plugin is anybody's code."""

    async def work(arguments: Mapping[str, Any], context: ToolContext) -> Any:
        return {"text": "not an outcome"}

    assert (await call(work)).result.failed


@pytest.mark.parametrize(
    ("effect", "hint"),
    [
        (Effect.NONE, ""),
        (Effect.ONCE, " It may have taken effect anyway: check before you repeat it."),
    ],
)
async def test_a_slow_tool_is_stopped(effect: Effect, hint: str) -> None:
    """After its own timeout; of one with an effect nobody knows how far it came."""
    stopped: list[bool] = []

    async def work(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        try:
            await asyncio.sleep(60)
        finally:
            stopped.append(True)
        return ToolOutput("late")

    outcome = await call(work, effect=effect, timeout_seconds=0.01)
    assert outcome.result.failed
    assert outcome.result.text == f"work took longer than 0.01 seconds and was stopped.{hint}"
    assert stopped == [True]


async def test_a_timeout_within_a_tool_is_its_own(caplog: pytest.LogCaptureFixture) -> None:
    """It is not told as ours."""
    outcome = await call(raising(TimeoutError()))
    assert "an error inside the tool" in outcome.result.text


async def test_cancellation_is_raised_again() -> None:
    """The tool is told, and no result is made up."""
    started, stopped = asyncio.Event(), asyncio.Event()

    async def work(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()
        return ToolOutput("late")

    task = asyncio.create_task(call(work))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stopped.is_set()


async def test_a_tool_cannot_cancel_the_run() -> None:
    """A cancellation that nobody asked for is a failure of the tool."""
    outcome = await call(raising(asyncio.CancelledError()), effect=Effect.NONE)
    assert (outcome.result.text, outcome.result.failed) == ("work was interrupted.", True)


async def test_results_and_errors_have_a_length() -> None:
    """What is left out is said; an error is bounded as well."""
    exact = await call(saying("x" * MAX_RESULT_CHARS))
    assert exact.result.text == "x" * MAX_RESULT_CHARS
    cut = await call(saying("x" * 5_000_000, *[SourceReference("a.md")] * 1_000))
    assert len(cut.result.text) == MAX_RESULT_CHARS
    assert cut.result.text.endswith("x\n[Cut here: this is the beginning of 5,000,000 characters.]")
    assert len(cut.output.sources) == MAX_SOURCES
    failed = await call(raising(ToolFailed("x" * 5_000_000)))
    assert len(failed.result.text) == MAX_RESULT_CHARS


async def test_calls_run_side_by_side() -> None:
    """One that waits does not hold up another."""
    gate = asyncio.Event()

    async def work(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        if arguments["n"] == 1:
            await gate.wait()
        gate.set()
        return ToolOutput(str(arguments["n"]))

    tools = registry(work)
    outcomes = await asyncio.gather(
        *(
            call_tool(
                tools, ToolCall(str(n), "work", f'{{"n": {n}}}'), agent="oracle", context=CONTEXT
            )
            for n in (1, 2)
        )
    )
    assert [outcome.result.text for outcome in outcomes] == ["1", "2"]
