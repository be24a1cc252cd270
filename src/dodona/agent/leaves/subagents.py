"""Handing work on: a call that names a subagent, and results too large to be read as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any, Final

from dodona.agent.conversation.exchange import parse_arguments
from dodona.agent.leaves.answer import notice_of_end
from dodona.agent.leaves.approval import DENIED, announce, approval_of
from dodona.agent.leaves.tools import report
from dodona.agent.run_context.context import RunContext
from dodona.agent.run_context.registries import LIBRARIAN, leaf, subagent_name
from dodona.agent.run_context.snapshot import PinnedSubagent
from dodona.agent.subagents.delegation import is_too_large, summary_prompt
from dodona.agent.subagents.run import SubagentResult, run_subagent
from dodona.agent.turn_control.decision import TurnWarning
from dodona.core.errors import DodonaError
from dodona.core.messages import ToolCall, ToolResult, UserText
from dodona.core.ports.tools import ToolCallResult
from dodona.trees import Blackboard, Step

NO_MODEL: Final = "extractive"  # a provider that quotes, and cannot sum up


@leaf("is-delegated?", reads=("_item",))
def is_delegated(bb: Blackboard, host: RunContext) -> bool:
    """Is this call not of a tool, but of a subagent?"""
    return subagent_name(bb["_item"]["name"]) in host.pins.deputies


@leaf("oracle.announce", reads=("_item", "approval"), step=True)
def announce_call(bb: Blackboard, step: Step, host: RunContext) -> None:
    """Show a call before the work that it begins; by itself, so that a crash does not repeat it."""
    host.is_live = True
    if approval_of(bb) is None:
        announce(host, step, ToolCall(**bb["_item"]))


def _request(bb: Blackboard, host: RunContext, arguments: Mapping[str, Any]) -> str:
    del host, arguments
    return f"{bb['_item']['name']}\0{bb['_item']['arguments']}"


@leaf(
    "oracle.delegate",
    reads=("_item", "_index", "approval", "state"),
    writes=("tool_results",),
    effect="none",
    request=_request,
)
async def delegate(bb: Blackboard, step: Step, host: RunContext) -> None:
    """Let a subagent do a task; its report is a result for the model, like any tool's."""
    host.is_live = True
    call = ToolCall(**bb["_item"])
    deputy = host.pins.deputies[subagent_name(call.name)]
    started = perf_counter()
    task = _task(call)
    leave = approval_of(bb)
    if leave is not None and leave["outcome"] == DENIED:
        done = leave["reason"]
    elif task:
        done = await _done(bb, step, host, deputy, task)
    else:
        done = 'The arguments must be {"task": "what to do, in words"}.'
    duration_ms = round((perf_counter() - started) * 1000)
    bb["tool_results"] = {
        **_reported(host, step, call, done, duration_ms),
        "index": bb["_index"],
        "rested": duration_ms / 1000 + (leave or {}).get("rested", 0.0),
        "events": (leave or {}).get("events", []),
    }


def _reported(
    host: RunContext, step: Step, call: ToolCall, done: SubagentResult | str, duration_ms: int
) -> dict[str, Any]:
    """What the journal keeps; of an errand also what it used, read and where that was from."""
    if isinstance(done, str):
        result = ToolResult(call.id, call.name, done, failed=True)
        return report(host, step, ToolCallResult(result, duration_ms))
    result = ToolResult(call.id, call.name, done.text, failed=done.failed)
    sources = tuple(done.host.sources)
    kept = report(host, step, ToolCallResult(result, duration_ms, sources=sources))
    outside = sorted(origin.value for origin in done.host.untrusted_origins)
    return {**kept, "tokens": done.tokens, "outside": outside, "subagent": done.host.role.agent}


async def _done(
    bb: Blackboard, step: Step, host: RunContext, deputy: PinnedSubagent, task: str
) -> SubagentResult | str:
    """The errand, or why there was none."""
    try:
        return await run_subagent(host, step, deputy, task, state=host.state(bb))
    except DodonaError as error:
        return f"The {deputy.name} could not: {error.message}"


def _task(call: ToolCall) -> str:
    given = parse_arguments(call.arguments).get("task")
    return given.strip() if isinstance(given, str) else ""


@leaf("is-too-large?", reads=("tool_results",))
def too_large(bb: Blackboard, host: RunContext) -> bool:
    """Should somebody sum up what a tool returned, before the model reads it?"""
    if not host.means.conduct.summarise_results or LIBRARIAN.name not in host.pins.deputies:
        return False
    kept: Mapping[str, Any] = bb["tool_results"]
    return not kept["failed"] and is_too_large(kept, host.count(kept["text"]))


@leaf(
    "oracle.summarise_result",
    reads=("_item", "tool_results", "state"),
    writes=("tool_results",),
    effect="none",
    request=_request,
)
async def summarise_result(bb: Blackboard, step: Step, host: RunContext) -> None:
    """Let the Librarian sum up a large result. Without a report the result stays as it is."""
    host.is_live = True
    kept: dict[str, Any] = bb["tool_results"]
    deputy = host.pins.deputies[LIBRARIAN.name]
    chosen = await host.means.models.choose(
        host.pins.settings.subagent_model or deputy.model or host.pins.model, agent=host.agent_id
    )
    if chosen.model.provider == NO_MODEL:
        return
    started = perf_counter()
    reader = replace(deputy, tools=())
    task = summary_prompt(kept, bb["_item"]["arguments"], host.brief.question.content)
    done = await _done(bb, step, host, reader, task)
    if isinstance(done, str):
        return
    rested = kept.get("rested", 0.0) + perf_counter() - started
    summed = {**kept, "tokens": done.tokens, "rested": rested}
    if not done.failed:
        size = host.count(kept["text"])
        summed["text"] = (
            f"[The Librarian's summary of a result of {size:,} tokens. For more of it, make a "
            f"narrower call.]\n{done.text}"
        )
    bb["tool_results"] = summed


@leaf("subagent.add_task", reads=("task",))
def add_task(bb: Blackboard, host: RunContext) -> None:
    """Begin the transcript with the task."""
    host.add_prompt(UserText(bb["task"]))


@leaf("subagent.explain_end", reads=("state", "failure"), writes=("stopped",))
def explain_errand(bb: Blackboard, host: RunContext) -> bool:
    """Say why the work stopped; it has failed all the same."""
    failure = bb["failure"]
    if failure is not None:
        bb["stopped"] = failure["message"]
    else:
        notice = notice_of_end(bb, host)
        bb["stopped"] = "its tree failed." if notice is None else _limit(notice)
    return False


def _limit(notice: TurnWarning) -> str:
    """Without the advice, which is for users."""
    told = notice.metadata
    if "limit_value" not in told:
        return notice.text
    return f"stopped at the limit of {told['limit_value']:,} {told['limit']}."
