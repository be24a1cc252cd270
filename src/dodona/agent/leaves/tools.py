"""The tools' part of a turn: each call is a step, and every call has its result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from dodona.agent.conversation.exchange import Turn
from dodona.agent.events.dispatch import emit_event, handle_event, rule_result
from dodona.agent.leaves.approval import DENIED, approval_of, emit_pending_call, find_offered_tool
from dodona.agent.run_context.context import RunContext
from dodona.agent.run_context.registries import leaf
from dodona.agent.safety.untrusted import allowed_urls, record_origins
from dodona.core import chunks
from dodona.core.domain.notices import to_stored_notice
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
from dodona.core.ports.tools import SourceReference, ToolCallResult, ToolContext
from dodona.trees import Blackboard, Step

UNKNOWN_OUTCOME_TEXT: Final = (
    "The outcome of this call is unknown: the process stopped while it was being made. It may have "
    "been done. Verify before repeating it."
)


def _effect(bb: Blackboard, host: RunContext, arguments: Mapping[str, Any]) -> Effect:
    """What the call may do: nothing, if it will not be made."""
    del arguments
    tool = find_offered_tool(host, bb["_item"]["name"])
    return Effect.NONE if tool is None or _denial_reason(bb) else tool.effect


def _denial_reason(bb: Blackboard) -> str:
    leave = approval_of(bb)
    return leave["reason"] if leave is not None and leave["outcome"] == DENIED else ""


def _request_key(bb: Blackboard, host: RunContext, arguments: Mapping[str, Any]) -> str:
    del host, arguments
    call = bb["_item"]
    return f"{call['name']}\0{call['arguments']}"


@leaf(
    "tools.execute",
    reads=("_item", "_index", "approval"),
    writes=("tool_results",),
    effect=_effect,
    request=_request_key,
)
async def execute_tool(bb: Blackboard, step: Step, host: RunContext) -> None:
    """Make one call; what comes of it, also an error, is a result for the model."""
    host.is_live = True
    call = ToolCall(**bb["_item"])
    leave = approval_of(bb)
    if leave is None:
        emit_pending_call(host, step, call)
    tool = find_offered_tool(host, call.name)
    if step.outcome_unknown:
        outcome = _failed_result(call, UNKNOWN_OUTCOME_TEXT)
    elif tool is None:
        outcome = ToolCallResult(_unknown_tool_result(host, call), 0)
    elif reason := _denial_reason(bb):
        outcome = _failed_result(call, reason)
    else:
        outcome = await _call_tool(host, step, call)
    kept = report_result(host, step, outcome)
    if tool is not None and tool.origin.is_untrusted:
        kept["outside"] = [tool.origin.value]
    if leave is not None:
        kept["rested"] = leave.get("rested", 0.0)
        kept["events"] = [*leave["events"], *kept.get("events", ())]
    bb["tool_results"] = {**kept, "index": bb["_index"]}


def _failed_result(call: ToolCall, text: str) -> ToolCallResult:
    return ToolCallResult(ToolResult(call.id, call.name, text, failed=True), 0)


async def _call_tool(host: RunContext, step: Step, call: ToolCall) -> ToolCallResult:
    context = ToolContext(
        host.user_id,
        host.project_id,
        key=f"run-{host.claim.run_id}/{host.step_key(step)}",
        agent=host.role.agent,
        allowed_urls=allowed_urls(host),
    )
    return await host.deps.call_tool(call, agent=host.role.agent, context=context)


def _unknown_tool_result(host: RunContext, call: ToolCall) -> ToolResult:
    names = sorted(host.role.tool_names)
    near = did_you_mean(call.name, names) or f"There are: {', '.join(names)}."
    said = f"There is no tool '{call.name[:80]}' here. {near}"
    return ToolResult(call.id, call.name, said, failed=True)


def report_result(host: RunContext, step: Step, outcome: ToolCallResult) -> dict[str, Any]:
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
    if outcome.entry_count:
        kept["entries"] = outcome.entry_count
    if outcome.scores:
        kept["scores"] = list(outcome.scores)
    if outcome.events:
        kept["events"] = [event.as_json() for event in outcome.events]
    if outcome.timed_out:
        kept["timed_out"] = True
    host.emit(_result_event(host, kept))
    return kept


def _result_event(host: RunContext, record: Mapping[str, Any]) -> Event:
    """What came of a call, as an event: made of what its step left, also after a crash."""
    payload = {"tool": record["name"], "call": record["id"], "ms": record["ms"]}
    if not record["failed"]:
        return host.build_event(TOOL_CALL_SUCCESS, Severity.INFO, payload)
    kind = TOOL_CALL_TIMEOUT if record.get("timed_out") else TOOL_CALL_FAILURE
    return host.build_event(kind, Severity.WARNING, {**payload, "error": record["text"][:200]})


@leaf("oracle.record_results", reads=("tool_results", "state"), writes=("state",))
def record_results(bb: Blackboard, host: RunContext) -> None:
    """Put the results into the transcript, in the order of the calls, and judge them."""
    given: dict[int, dict[str, Any]] = {kept["index"]: kept for kept in bb["tool_results"]}
    answer = host.pending_answer
    assert answer is not None
    most = host.role.limits.max_tool_calls_per_turn
    results = tuple(
        _tool_result(call, given.get(index), None if index < most else most)
        for index, call in enumerate(answer.calls)
    )
    durations = tuple((given.get(i) or {}).get("ms") for i in range(len(answer.calls)))
    host.turns.append(Turn(answer, results, durations))
    state = host.load_state(bb)
    for index, (call, result) in enumerate(zip(answer.calls, results, strict=True)):
        host.transcript.add(result, host.count_tokens(result.text))
        if index in given:  # else nobody made it, and it says nothing of the tools
            state = host.decision_tree.on_tool_result(state, _decision_tree_input(call, result))
    tokens = sum(kept.get("tokens", 0) for kept in given.values())
    rested = max((kept.get("rested", 0.0) for kept in given.values()), default=0.0)
    if tokens or rested:
        host.tokens_used += tokens
        state = replace(state, tokens_used=state.tokens_used + tokens).with_pause(rested)
    host.save_state(bb, state)
    host.notifications.record_turn((kept["name"], kept["failed"]) for kept in given.values())
    for _, kept in sorted(given.items()):
        host.sources.update(
            dict.fromkeys(SourceReference.from_json(each) for each in kept["sources"])
        )
        _handle_result(host, kept)
    record_origins(host, given.values())
    emit_event(host, AGENT_TURN_END, Severity.DEBUG, turn=state.turn)


def _handle_result(host: RunContext, record: Mapping[str, Any]) -> None:
    """Let the run hear what came of a call, and what the call itself had to say."""
    handle_event(host, _result_event(host, record), result=rule_result(record))
    if (subagent := record.get("subagent")) is not None:
        kind = SUBAGENT_FAILED if record["failed"] else SUBAGENT_COMPLETE
        severity = Severity.WARNING if record["failed"] else Severity.INFO
        payload = {"agent": subagent, "ms": record["ms"], "report": record["text"][:200]}
        emit_event(host, kind, severity, **payload)
    for each in record.get("events", ()):
        event = Event.from_json(each)
        deferred = event.payload.get("deferred")
        if deferred is None:
            handle_event(host, event)
        else:
            host.notifications.inbox.schedule([to_stored_notice(event, deferred, host.project_id)])


def _decision_tree_input(call: ToolCall, result: ToolResult) -> dict[str, Any]:
    return {
        "name": call.name,
        "arguments": call.arguments,
        "result": result.text,
        "failed": result.failed,
    }


def _tool_result(
    call: ToolCall, record: Mapping[str, Any] | None, exceeded_limit: int | None
) -> ToolResult:
    """The result of a call, or why there is none; `past` is the limit that it came after."""
    if record is not None:
        return ToolResult(call.id, call.name, record["text"], failed=record["failed"])
    said = "The call failed inside Dodona. Repeating it may not help."
    if exceeded_limit is not None:
        said = f"Not called: at most {exceeded_limit} tools are called in one turn. Call it again if need be."
    return ToolResult(call.id, call.name, said, failed=True)
