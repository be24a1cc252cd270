"""The Librarian: a second model that is given a task of its own, under its own limit of time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from time import perf_counter
from typing import Any

from dodona.agent.calling import ModelCall, call_model
from dodona.agent.delegating import DELEGATE
from dodona.agent.exchange import arguments_of
from dodona.agent.heard import Heard
from dodona.agent.host import Host
from dodona.agent.leaves.registry import leaf
from dodona.agent.leaves.tools import announce, report
from dodona.agent.prompting import render
from dodona.core.errors import DodonaError
from dodona.core.messages import SystemText, ToolCall, ToolResult, UserText
from dodona.core.model import ModelEvent, ModelRequest
from dodona.core.tools import CallOutcome
from dodona.trees import Blackboard, Step


@leaf("is-for-librarian?", reads=("_item",))
def is_for_librarian(bb: Blackboard) -> bool:
    """Is this call not of a tool, but of the Librarian?"""
    return bb["_item"]["name"] == DELEGATE


def _request(bb: Blackboard, host: Host, arguments: Mapping[str, Any]) -> str:
    del host, arguments
    return bb["_item"]["arguments"]


@leaf(
    "oracle.ask_librarian",
    reads=("_item", "_index"),
    writes=("tool_results",),
    effect="none",
    request=_request,
)
async def ask_librarian(bb: Blackboard, step: Step, host: Host) -> None:
    """Let the Librarian do a task; its words are a result for the model, like any tool's."""
    host.is_live = True
    call = ToolCall(**bb["_item"])
    announce(step, call)
    started = perf_counter()
    with step.rest():  # it has a limit of its own
        text, tokens = await _done(host, step, call)
    duration_ms = round((perf_counter() - started) * 1000)
    result = ToolResult(call.id, call.name, text, failed=tokens is None)
    kept = report(host, step, CallOutcome(result, duration_ms))
    more = {"index": bb["_index"], "tokens": tokens or 0, "rested": duration_ms / 1000}
    bb["tool_results"] = {**kept, **more}


async def _done(host: Host, step: Step, call: ToolCall) -> tuple[str, int | None]:
    """What the Librarian said, and the tokens that it took; None when it came to nothing."""
    settings = host.pins.settings
    task = _task(call)
    if not task:
        return 'The arguments must be {"task": "what to do, in words"}.', None
    limit = asyncio.timeout(settings.librarian_timeout)
    try:
        async with limit:
            return await _asked(host, step, task)
    except TimeoutError:
        return f"The Librarian did not finish in {settings.librarian_timeout} seconds.", None
    except DodonaError as error:
        return f"The Librarian could not: {error.message}", None


def _task(call: ToolCall) -> str:
    given = arguments_of(call.arguments).get("task")
    return given.strip() if isinstance(given, str) else ""


async def _asked(host: Host, step: Step, task: str) -> tuple[str, int]:
    chosen = await host.means.models.choose(host.pins.settings.subagent_model or host.pins.model)
    prompt = render(
        host.pins.librarian, {"project_id": host.project_id, "tools": []}, file="librarian.md"
    )
    request = ModelRequest(
        messages=(SystemText(prompt), UserText(task)),
        max_tokens=chosen.max_tokens,
        temperature=chosen.temperature,
    )

    def show(event: ModelEvent) -> None:
        del event
        step.progress()

    size = host.count(prompt) + host.count(task)
    asked = ModelCall(chosen=chosen, request=request, step_key=step.key, input_tokens=size)
    done = await call_model(host, asked, show, Heard())
    tokens = done.usage.input_tokens + done.usage.output_tokens
    return done.message.text or "The Librarian had nothing to say.", tokens
