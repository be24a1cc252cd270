"""Run one tool call. Every call gets a result.

| outcome                     | the model reads                                               |
|-----------------------------|---------------------------------------------------------------|
| unknown tool for the agent  | the error, with the nearest name                              |
| invalid arguments           | the problem, and the list of parameters                       |
| the tool raises ToolFailed  | the tool's message                                            |
| timeout                     | the error; for a tool with an effect, that it may have run    |
| any other exception         | a generic sentence; the traceback is in the log               |
| cancelled                   | nothing: the cancellation is raised again                     |
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any, Final

from dodona.concurrency.timeouts import pausable_timeout
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

# Errors whose text may be shown. The text of others may name files and servers.
_MODEL_VISIBLE_ERRORS: Final = (
    ToolFailed,
    ToolRetry,
    AccessDenied,
    NotFound,
    BadRequest,
    BudgetExceeded,
)


class _ToolTimedOut(ToolFailed):
    """The tool ran into its timeout and was stopped."""


async def call_tool(
    tools: ToolRegistry, call: ToolCall, *, agent: str, context: ToolContext
) -> ToolCallResult:
    """Run a tool call that an agent's model requested. Raises nothing but cancellation."""
    started = perf_counter()
    arguments: dict[str, Any] = {}
    outcome = ToolOutput("")
    timed_out = False
    try:
        entry = tools.find_for_agent(call.name, agent)
        if entry is None:
            raise _unknown_tool_error(tools, agent, call.name)  # noqa: TRY301 - handled like any other
        arguments = entry.argument_reader.read(call.arguments, project_id=context.project_id)
        tool_output = await _call_with_timeout(entry.tool, arguments, context)
        result = ToolResult(call.id, call.name, truncate_text(tool_output.text))
        outcome = tool_output
        if result.text != tool_output.text:
            outcome = replace(outcome, shown=())  # the model gets only the beginning
    except _MODEL_VISIBLE_ERRORS as error:
        result = _failed_result(call, str(error))
        timed_out = isinstance(error, _ToolTimedOut)
    except Exception:  # noqa: BLE001 - a tool may raise anything; the run continues
        _log.exception("tool %s failed", call.name[:80], extra={"call": call.id, "agent": agent})
        text = f"{call.name} failed: an error inside the tool. Repeating the call may not help."
        result = _failed_result(call, text)
    return ToolCallResult(
        result,
        round((perf_counter() - started) * 1000),
        arguments,
        replace(outcome, sources=outcome.sources[:MAX_SOURCES], events=outcome.events[:MAX_EVENTS]),
        timed_out=timed_out,
    )


async def _call_with_timeout(
    tool: Tool, arguments: Mapping[str, Any], context: ToolContext
) -> ToolOutput:
    deadline: asyncio.Timeout | None = None
    try:
        async with pausable_timeout(tool.timeout_seconds) as deadline:
            return await tool.call(arguments, context)
    except TimeoutError:
        if deadline is None or not deadline.expired():
            raise  # raised by the tool
        seconds = f"{tool.timeout_seconds:g} seconds"
        raise _ToolTimedOut(
            f"{tool.spec.name} took longer than {seconds} and was stopped.",
            hint=_retry_warning(tool),
        ) from None
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # We were not cancelled: a task that the tool awaited was, so the tool failed.
        raise ToolFailed(f"{tool.spec.name} was interrupted.", hint=_retry_warning(tool)) from None


def _retry_warning(tool: Tool) -> str:
    if tool.effect is Effect.NONE:
        return ""
    return "It may have taken effect anyway: check before you repeat it."


def _unknown_tool_error(tools: ToolRegistry, agent: str, name: str) -> DodonaError:
    names = [spec.name for spec in tools.specs_for(agent)]
    available = f"Available tools: {', '.join(names)}." if names else "There are no tools."
    return ToolRetry(
        f"There is no tool '{name[:80]}'.",
        hint=f"{did_you_mean(name, names)} {available}".strip(),
    )


def _failed_result(call: ToolCall, text: str) -> ToolResult:
    return ToolResult(call.id, call.name, truncate_text(text), failed=True)


def truncate_text(text: str) -> str:
    """Return the text, cut to MAX_RESULT_CHARS with a note about the rest."""
    if len(text) <= MAX_RESULT_CHARS:
        return text
    note = f"\n[Cut here: this is the beginning of {len(text):,} characters.]"
    return text[: MAX_RESULT_CHARS - len(note)] + note
