"""Handing work on: a call that names a subagent, and results too large to be read as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any, Final

from dodona.agent.conversation.exchange import parse_arguments
from dodona.agent.leaves.answer import end_warning
from dodona.agent.leaves.approval import DENIED, approval_of, emit_pending_call
from dodona.agent.leaves.tools import report_result
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

EXTRACTIVE_PROVIDER: Final = "extractive"  # a provider that quotes, and cannot sum up


@leaf("is-delegated?", reads=("_item",))
def is_delegated(bb: Blackboard, host: RunContext) -> bool:
    """Is this call not of a tool, but of a subagent?"""
    return subagent_name(bb["_item"]["name"]) in host.snapshot.subagents


@leaf("oracle.announce", reads=("_item", "approval"), step=True)
def announce_call(bb: Blackboard, step: Step, host: RunContext) -> None:
    """Show a call before the work that it begins; by itself, so that a crash does not repeat it."""
    host.is_live = True
    if approval_of(bb) is None:
        emit_pending_call(host, step, ToolCall(**bb["_item"]))


def _request_key(bb: Blackboard, host: RunContext, arguments: Mapping[str, Any]) -> str:
    del host, arguments
    return f"{bb['_item']['name']}\0{bb['_item']['arguments']}"


@leaf(
    "oracle.delegate",
    reads=("_item", "_index", "approval", "state"),
    writes=("tool_results",),
    effect="none",
    request=_request_key,
)
async def delegate(bb: Blackboard, step: Step, host: RunContext) -> None:
    """Let a subagent do a task; its report is a result for the model, like any tool's."""
    host.is_live = True
    call = ToolCall(**bb["_item"])
    deputy = host.snapshot.subagents[subagent_name(call.name)]
    started = perf_counter()
    task = _parse_task(call)
    leave = approval_of(bb)
    if leave is not None and leave["outcome"] == DENIED:
        done = leave["reason"]
    elif task:
        done = await _try_subagent(bb, step, host, deputy, task)
    else:
        done = 'The arguments must be {"task": "what to do, in words"}.'
    duration_ms = round((perf_counter() - started) * 1000)
    bb["tool_results"] = {
        **_result_record(host, step, call, done, duration_ms),
        "index": bb["_index"],
        "rested": duration_ms / 1000 + (leave or {}).get("rested", 0.0),
        "events": (leave or {}).get("events", []),
    }


def _result_record(
    host: RunContext, step: Step, call: ToolCall, outcome: SubagentResult | str, duration_ms: int
) -> dict[str, Any]:
    """What the journal keeps; of an errand also what it used, read and where that was from."""
    if isinstance(outcome, str):
        result = ToolResult(call.id, call.name, outcome, failed=True)
        return report_result(host, step, ToolCallResult(result, duration_ms))
    result = ToolResult(call.id, call.name, outcome.text, failed=outcome.failed)
    sources = tuple(outcome.host.sources)
    kept = report_result(host, step, ToolCallResult(result, duration_ms, sources=sources))
    outside = sorted(origin.value for origin in outcome.host.untrusted_origins)
    return {
        **kept,
        "tokens": outcome.tokens,
        "outside": outside,
        "subagent": outcome.host.role.agent,
    }


async def _try_subagent(
    bb: Blackboard, step: Step, host: RunContext, subagent: PinnedSubagent, task: str
) -> SubagentResult | str:
    """The errand, or why there was none."""
    try:
        return await run_subagent(host, step, subagent, task, state=host.load_state(bb))
    except DodonaError as error:
        return f"The {subagent.name} could not: {error.message}"


def _parse_task(call: ToolCall) -> str:
    given = parse_arguments(call.arguments).get("task")
    return given.strip() if isinstance(given, str) else ""


@leaf("is-too-large?", reads=("tool_results",))
def is_result_too_large(bb: Blackboard, host: RunContext) -> bool:
    """Should somebody sum up what a tool returned, before the model reads it?"""
    if not host.deps.policy.summarise_results or LIBRARIAN.name not in host.snapshot.subagents:
        return False
    kept: Mapping[str, Any] = bb["tool_results"]
    return not kept["failed"] and is_too_large(kept, host.count_tokens(kept["text"]))


@leaf(
    "oracle.summarise_result",
    reads=("_item", "tool_results", "state"),
    writes=("tool_results",),
    effect="none",
    request=_request_key,
)
async def summarise_result(bb: Blackboard, step: Step, host: RunContext) -> None:
    """Let the Librarian sum up a large result. Without a report the result stays as it is."""
    host.is_live = True
    kept: dict[str, Any] = bb["tool_results"]
    deputy = host.snapshot.subagents[LIBRARIAN.name]
    chosen = await host.deps.models.choose(
        host.snapshot.settings.subagent_model or deputy.model or host.snapshot.model,
        agent=host.agent_id,
    )
    if chosen.model.provider == EXTRACTIVE_PROVIDER:
        return
    started = perf_counter()
    reader = replace(deputy, tools=())
    task = summary_prompt(kept, bb["_item"]["arguments"], host.inputs.question.content)
    done = await _try_subagent(bb, step, host, reader, task)
    if isinstance(done, str):
        return
    rested = kept.get("rested", 0.0) + perf_counter() - started
    summed = {**kept, "tokens": done.tokens, "rested": rested}
    if not done.failed:
        size = host.count_tokens(kept["text"])
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
def explain_subagent_end(bb: Blackboard, host: RunContext) -> bool:
    """Say why the work stopped; it has failed all the same."""
    failure = bb["failure"]
    if failure is not None:
        bb["stopped"] = failure["message"]
    else:
        notice = end_warning(bb, host)
        bb["stopped"] = "its tree failed." if notice is None else _format_limit(notice)
    return False


def _format_limit(warning: TurnWarning) -> str:
    """Without the advice, which is for users."""
    told = warning.metadata
    if "limit_value" not in told:
        return warning.text
    return f"stopped at the limit of {told['limit_value']:,} {told['limit']}."
