"""The tools' part of a turn: each call is a step, and every call has its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from dodona.agent.conversation.exchange import Turn
from dodona.agent.events.dispatch import emit_event, handle_event, rule_result
from dodona.agent.leaves.approval import DENIED, announce, approval_of, tool_of
from dodona.agent.run_context.context import RunContext
from dodona.agent.run_context.registries import leaf
from dodona.agent.safety.untrusted import allowed_urls, record_origins
from dodona.core import chunks
from dodona.core.domain.notices import stored_from
from dodona.core.errors import did_you_mean
from dodona.core.events import (
    AGENT_TURN_END,
    SUBAGENT_COMPLETE,
    SUBAGENT_FAILED,
    TOOL_CALL_FAILURE,
    TOOL_CALL_SUCCESS,
    TOOL_CALL_TIMEOUT,
    Event,
    Severity,
)
from dodona.core.messages import ToolCall, ToolResult
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import Source, ToolCallResult, ToolContext
from dodona.trees import Blackboard, Step

UNKNOWN: Final = (
    "The outcome of this call is unknown: the process stopped while it was being made. It may have "
    "been done. Verify before repeating it."
)


def _effect(bb: Blackboard, host: RunContext, arguments: Mapping[str, Any]) -> Effect:
    """What the call may do: nothing, if it will not be made."""
    del arguments
    tool = tool_of(host, bb["_item"]["name"])
    return Effect.NONE if tool is None or _refusal(bb) else tool.effect


def _refusal(bb: Blackboard) -> str:
    leave = approval_of(bb)
    return leave["reason"] if leave is not None and leave["outcome"] == DENIED else ""


def _request(bb: Blackboard, host: RunContext, arguments: Mapping[str, Any]) -> str:
    del host, arguments
    call = bb["_item"]
    return f"{call['name']}\0{call['arguments']}"


@leaf(
    "tools.execute",
    reads=("_item", "_index", "approval"),
    writes=("tool_results",),
    effect=_effect,
    request=_request,
)
async def execute_tool(bb: Blackboard, step: Step, host: RunContext) -> None:
    """Make one call; what comes of it, also an error, is a result for the model."""
    host.is_live = True
    call = ToolCall(**bb["_item"])
    leave = approval_of(bb)
    if leave is None:
        announce(host, step, call)
    tool = tool_of(host, call.name)
    if step.outcome_unknown:
        outcome = _failed(call, UNKNOWN)
    elif tool is None:
        outcome = ToolCallResult(_not_offered(host, call), 0)
    elif reason := _refusal(bb):
        outcome = _failed(call, reason)
    else:
        outcome = await _called(host, step, call)
    kept = report(host, step, outcome)
    if tool is not None and tool.origin.is_untrusted:
        kept["outside"] = [tool.origin.value]
    if leave is not None:
        kept["rested"] = leave.get("rested", 0.0)
        kept["events"] = [*leave["events"], *kept.get("events", ())]
    bb["tool_results"] = {**kept, "index": bb["_index"]}


def _failed(call: ToolCall, said: str) -> ToolCallResult:
    return ToolCallResult(ToolResult(call.id, call.name, said, failed=True), 0)


async def _called(host: RunContext, step: Step, call: ToolCall) -> ToolCallResult:
    context = ToolContext(
        host.user_id,
        host.project_id,
        key=f"run-{host.claim.run_id}/{host.key(step)}",
        agent=host.role.agent,
        allowed_urls=allowed_urls(host),
    )
    return await host.means.call_tool(call, agent=host.role.agent, context=context)


def _not_offered(host: RunContext, call: ToolCall) -> ToolResult:
    names = sorted(host.role.tool_names)
    near = did_you_mean(call.name, names) or f"There are: {', '.join(names)}."
    said = f"There is no tool '{call.name[:80]}' here. {near}"
    return ToolResult(call.id, call.name, said, failed=True)


def report(host: RunContext, step: Step, outcome: ToolCallResult) -> dict[str, Any]:
    """Tell everybody what came of a call; what the journal keeps of it."""
    result = outcome.result
    status = "error" if result.failed else "success"
    step.emit(
        chunks.tool_result(
            id=result.call_id,
            name=result.name,
            result=result.text,
            status=status,
            sources=outcome.sources,
        )
    )
    kept: dict[str, Any] = {
        "id": result.call_id,
        "name": result.name,
        "text": result.text,
        "failed": result.failed,
        "ms": outcome.duration_ms,
        "sources": [source.as_json() for source in outcome.sources],
    }
    if outcome.entries:
        kept["entries"] = outcome.entries
    if outcome.scores:
        kept["scores"] = list(outcome.scores)
    if outcome.events:
        kept["events"] = [event.as_json() for event in outcome.events]
    if outcome.timed_out:
        kept["timed_out"] = True
    host.emit(_event(host, kept))
    return kept


def _event(host: RunContext, kept: Mapping[str, Any]) -> Event:
    """What came of a call, as an event: made of what its step left, also after a crash."""
    payload = {"tool": kept["name"], "call": kept["id"], "ms": kept["ms"]}
    if not kept["failed"]:
        return host.event(TOOL_CALL_SUCCESS, Severity.INFO, payload)
    kind = TOOL_CALL_TIMEOUT if kept.get("timed_out") else TOOL_CALL_FAILURE
    return host.event(kind, Severity.WARNING, {**payload, "error": kept["text"][:200]})


@leaf("oracle.record_results", reads=("tool_results", "state"), writes=("state",))
def record_results(bb: Blackboard, host: RunContext) -> None:
    """Put the results into the transcript, in the order of the calls, and judge them."""
    given: dict[int, dict[str, Any]] = {kept["index"]: kept for kept in bb["tool_results"]}
    answer = host.answer
    assert answer is not None
    most = host.role.limits.max_tool_calls_per_turn
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
    host.save_state(bb, state)
    host.notifications.note_turn((kept["name"], kept["failed"]) for kept in given.values())
    for _, kept in sorted(given.items()):
        host.sources.update(dict.fromkeys(Source.read(each) for each in kept["sources"]))
        _hear(host, kept)
    record_origins(host, given.values())
    emit_event(host, AGENT_TURN_END, Severity.DEBUG, turn=state.turn)


def _hear(host: RunContext, kept: Mapping[str, Any]) -> None:
    """Let the run hear what came of a call, and what the call itself had to say."""
    handle_event(host, _event(host, kept), result=rule_result(kept))
    if (subagent := kept.get("subagent")) is not None:
        kind = SUBAGENT_FAILED if kept["failed"] else SUBAGENT_COMPLETE
        severity = Severity.WARNING if kept["failed"] else Severity.INFO
        payload = {"agent": subagent, "ms": kept["ms"], "report": kept["text"][:200]}
        emit_event(host, kind, severity, **payload)
    for each in kept.get("events", ()):
        event = Event.read(each)
        deferred = event.payload.get("deferred")
        if deferred is None:
            handle_event(host, event)
        else:
            host.notifications.inbox.schedule([stored_from(event, deferred, host.project_id)])


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
