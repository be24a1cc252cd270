"""The tools' part of a turn: each call is a step, and every call has its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from dodona.agent.exchange import Turn, arguments_of
from dodona.agent.host import Host
from dodona.agent.leaves.registry import leaf
from dodona.agent.means import AGENT
from dodona.core import chunks
from dodona.core.events import TOOL_CALL_FAILURE, TOOL_CALL_SUCCESS, Severity
from dodona.core.messages import ToolCall, ToolResult
from dodona.core.near import did_you_mean
from dodona.core.ports import Effect
from dodona.core.tools import CallOutcome, Source, ToolContext
from dodona.trees import Blackboard, Step

UNKNOWN: Final = (
    "The outcome of this call is unknown: the process stopped while it was being made. It may have "
    "been done. Verify before repeating it."
)


def _effect(bb: Blackboard, host: Host, arguments: Mapping[str, Any]) -> Effect:
    del arguments
    name: str = bb["_item"]["name"]
    tool = host.means.toolbox.find(name) if name in host.pins.names else None
    return Effect.NONE if tool is None else tool.effect


def _request(bb: Blackboard, host: Host, arguments: Mapping[str, Any]) -> str:
    del host, arguments
    call = bb["_item"]
    return f"{call['name']}\0{call['arguments']}"


@leaf(
    "tools.execute",
    reads=("_item", "_index"),
    writes=("tool_results",),
    effect=_effect,
    request=_request,
)
async def execute_tool(bb: Blackboard, step: Step, host: Host) -> None:
    """Make one call; what comes of it, also an error, is a result for the model."""
    host.is_live = True
    call = ToolCall(**bb["_item"])
    announce(step, call)
    if step.outcome_unknown:
        outcome = CallOutcome(ToolResult(call.id, call.name, UNKNOWN, failed=True), 0)
    elif call.name not in host.pins.names:
        outcome = CallOutcome(_not_offered(host, call), 0)
    else:
        key = f"run-{host.claim.run_id}/{step.key}"
        context = ToolContext(host.user_id, host.project_id, key)
        outcome = await host.means.call_tool(call, agent=AGENT, context=context)
    bb["tool_results"] = {**report(host, step, outcome), "index": bb["_index"]}


def _not_offered(host: Host, call: ToolCall) -> ToolResult:
    names = sorted(host.pins.names)
    near = did_you_mean(call.name, names) or f"There are: {', '.join(names)}."
    said = f"There is no tool '{call.name[:80]}' here. {near}"
    return ToolResult(call.id, call.name, said, failed=True)


def announce(step: Step, call: ToolCall) -> None:
    arguments = arguments_of(call.arguments)
    step.emit(chunks.tool_call(id=call.id, name=call.name, arguments=arguments, status="pending"))


def report(host: Host, step: Step, outcome: CallOutcome) -> dict[str, Any]:
    """Tell everybody what came of a call; what the journal keeps of it."""
    result = outcome.result
    status = "error" if result.failed else "success"
    step.emit(
        chunks.tool_result(id=result.call_id, name=result.name, result=result.text, status=status)
    )
    kind = TOOL_CALL_FAILURE if result.failed else TOOL_CALL_SUCCESS
    severity = Severity.WARNING if result.failed else Severity.INFO
    host.emit(kind, severity, tool=result.name, call=result.call_id, ms=outcome.duration_ms)
    return {
        "id": result.call_id,
        "name": result.name,
        "text": result.text,
        "failed": result.failed,
        "ms": outcome.duration_ms,
        "sources": [[s.path, s.title, s.lines, s.excerpt] for s in outcome.sources],
    }


@leaf("oracle.take_results", reads=("tool_results", "state"), writes=("state",))
def take_results(bb: Blackboard, host: Host) -> None:
    """Put the results into the transcript, in the order of the calls, and judge them."""
    given: dict[int, dict[str, Any]] = {kept["index"]: kept for kept in bb["tool_results"]}
    answer = host.answer
    assert answer is not None
    most = host.pins.settings.limits.max_tool_calls_per_turn
    results = tuple(
        _result(call, given.get(index), None if index < most else most)
        for index, call in enumerate(answer.calls)
    )
    durations = tuple((given.get(i) or {}).get("ms") for i in range(len(answer.calls)))
    host.turns.append(Turn(answer, results, durations))
    state = host.state(bb)
    for index, (call, result) in enumerate(zip(answer.calls, results, strict=True)):
        host.transcript.add(result, host.count(result.text))
        if index in given:  # else nobody made it, and it says nothing of the tools
            state = host.decisions.on_tool_result(state, _judged(call, result))
    tokens = sum(kept.get("tokens", 0) for kept in given.values())
    rested = max((kept.get("rested", 0.0) for kept in given.values()), default=0.0)
    if tokens or rested:
        host.tokens_used += tokens
        state = replace(state, tokens_used=state.tokens_used + tokens).paused(rested)
    host.keep_state(bb, state)
    for kept in given.values():
        host.sources.update(dict.fromkeys(Source(*each) for each in kept["sources"]))


def _judged(call: ToolCall, result: ToolResult) -> dict[str, Any]:
    return {
        "name": call.name,
        "arguments": call.arguments,
        "result": result.text,
        "failed": result.failed,
    }


def _result(call: ToolCall, kept: Mapping[str, Any] | None, past: int | None) -> ToolResult:
    """The result of a call, or why there is none; `past` is the limit that it came after."""
    if kept is not None:
        return ToolResult(call.id, call.name, kept["text"], failed=kept["failed"])
    said = "The call failed inside Dodona. Repeating it may not help."
    if past is not None:
        said = f"Not called: at most {past} tools are called in one turn. Call it again if need be."
    return ToolResult(call.id, call.name, said, failed=True)
