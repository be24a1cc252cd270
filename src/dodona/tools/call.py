"""One call of a tool, whatever comes of it. Every call has its result.

| what happens                          | what the model reads                              |
|---------------------------------------|---------------------------------------------------|
| no such tool for this agent           | so, with the nearest name                         |
| arguments that do not fit             | what is wrong, and which parameters there are     |
| the tool says that it cannot          | its own words                                     |
| too slow                              | so; of a tool with an effect, that it may be done |
| any other exception                   | a plain sentence; the traceback is in the log     |
| cancelled                             | nothing: it is raised again                       |
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from time import perf_counter
from typing import Any, Final

from dodona.core.errors import (
    AccessDenied,
    BadRequest,
    BudgetExceeded,
    DodonaError,
    NotFound,
    ToolFailed,
    ToolRetry,
    did_you_mean,
)
from dodona.core.messages import ToolCall, ToolResult
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import Tool, ToolCallResult, ToolContext, ToolOutput
from dodona.tools.registry import ToolRegistry

MAX_RESULT_CHARS: Final = 100_000
MAX_SOURCES: Final = 50
MAX_EVENTS: Final = 20

_log = logging.getLogger(__name__)

# Errors whose words are meant for whoever asked. Others may speak of files and servers.
_MODEL_VISIBLE_ERRORS: Final = (
    ToolFailed,
    ToolRetry,
    AccessDenied,
    NotFound,
    BadRequest,
    BudgetExceeded,
)


class _ToolTimedOut(ToolFailed):
    """A tool that was stopped at its limit of time."""


async def call_tool(
    tools: ToolRegistry, call: ToolCall, *, agent: str, context: ToolContext
) -> ToolCallResult:
    """Call a tool as an agent's model asked. Raises nothing but cancellation."""
    started = perf_counter()
    arguments: dict[str, Any] = {}
    outcome = ToolOutput("")
    timed_out = False
    try:
        entry = tools.find_for_agent(call.name, agent)
        if entry is None:
            raise _unknown_tool_error(tools, agent, call.name)  # noqa: TRY301 - answered like any other
        arguments = entry.argument_reader.read(call.arguments, project_id=context.project_id)
        returned = await _call_with_timeout(entry.tool, arguments, context)
        result = ToolResult(call.id, call.name, truncate_text(returned.text))
        outcome = returned
    except _MODEL_VISIBLE_ERRORS as error:
        result = _failed_result(call, str(error))
        timed_out = isinstance(error, _ToolTimedOut)
    except Exception:  # noqa: BLE001 - a tool is anybody's code, and the run goes on without it
        _log.exception("tool %s failed", call.name[:80], extra={"call": call.id, "agent": agent})
        said = f"{call.name} failed: an error inside the tool. Repeating the call may not help."
        result = _failed_result(call, said)
    return ToolCallResult(
        result,
        round((perf_counter() - started) * 1000),
        arguments,
        outcome.sources[:MAX_SOURCES],
        outcome.entry_count,
        outcome.scores,
        outcome.events[:MAX_EVENTS],
        timed_out=timed_out,
    )


async def _call_with_timeout(
    tool: Tool, arguments: Mapping[str, Any], context: ToolContext
) -> ToolOutput:
    deadline = asyncio.timeout(tool.timeout_seconds)
    try:
        async with deadline:
            return await tool.call(arguments, context)
    except TimeoutError:
        if not deadline.expired():
            raise  # the tool's own
        seconds = f"{tool.timeout_seconds:g} seconds"
        raise _ToolTimedOut(
            f"{tool.spec.name} took longer than {seconds} and was stopped.",
            hint=_retry_warning(tool),
        ) from None
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # Nobody cancelled us: something that the tool waited for was, and that is its failure.
        raise ToolFailed(f"{tool.spec.name} was cut off.", hint=_retry_warning(tool)) from None


def _retry_warning(tool: Tool) -> str:
    if tool.effect is Effect.NONE:
        return ""
    return "It may have been done all the same: verify before repeating it."


def _unknown_tool_error(tools: ToolRegistry, agent: str, name: str) -> DodonaError:
    names = [spec.name for spec in tools.specs_for(agent)]
    there_are = f"There are: {', '.join(names)}." if names else "There are no tools."
    return ToolRetry(
        f"There is no tool '{name[:80]}'.",
        hint=f"{did_you_mean(name, names)} {there_are}".strip(),
    )


def _failed_result(call: ToolCall, text: str) -> ToolResult:
    return ToolResult(call.id, call.name, truncate_text(text), failed=True)


def truncate_text(text: str) -> str:
    """The text, or its beginning with a note that the rest is left out."""
    if len(text) <= MAX_RESULT_CHARS:
        return text
    note = f"\n[Cut here: this is the beginning of {len(text):,} characters.]"
    return text[: MAX_RESULT_CHARS - len(note)] + note
