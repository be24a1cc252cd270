"""Tool calls of a turn: each call is a step, and every call has a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from msgspec import convert, to_builtins
from msgspec.structs import replace

from dodona.agent.conversation.exchange import Turn, parse_arguments
from dodona.agent.events.dispatch import emit_event, handle_event
from dodona.agent.events.rule_context import tool_result_for_rules
from dodona.agent.leaves.approval import (
    approval_of,
    check_approval,
    current_call,
    describe_call,
    emit_pending_event,
    find_offered_tool,
)
from dodona.agent.run_context.context import RunContext
from dodona.agent.run_context.records import ApprovalRecord, ToolResultRecord
from dodona.agent.safety.trust import allowed_urls
from dodona.core.chunks import ResultSource, SystemChunk, ToolCallChunk, ToolResultChunk
from dodona.core.domain.trust import NO_MARKS, Mark, Marks, merge_marks
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
from dodona.core.ports.tools import Tool, ToolCallResult, ToolContext
from dodona.trees import Blackboard, Step, leaf

UNKNOWN_OUTCOME_TEXT: Final = (
    "The outcome of this call is unknown: the process stopped during the call. It may have taken "
    "effect. Verify before you repeat it."
)


def _effect(bb: Blackboard, host: RunContext, arguments: Mapping[str, Any]) -> Effect:
    """The effect of the call; none if the tool is unknown or the call was denied."""
    del arguments
    tool = find_offered_tool(host, bb["_item"]["name"])
    return Effect.NONE if tool is None or _denial_reason(bb) else tool.effect


def _denial_reason(bb: Blackboard) -> str:
    approval = approval_of(bb)
    return approval.reason if approval is not None and approval.is_denied else ""


def emit_calls(host: RunContext, step: Step, calls: Sequence[ToolCall]) -> None:
    """Show the calls of a turn before any of them starts; those over the limit fail at once."""
    for call in calls:
        arguments = parse_arguments(call.arguments)
        step.emit(ToolCallChunk(id=call.id, name=call.name, arguments=arguments, status="pending"))
    max_calls = host.role.limits.max_tool_calls_per_turn
    for call in calls[max_calls:]:
        text = _over_limit_text(max_calls)
        step.emit(
            ToolResultChunk(id=call.id, name=call.name, result=text, status="error", sources=[])
        )


def _over_limit_text(max_calls: int) -> str:
    return (
        f"Not called: a turn may have at most {max_calls} tool calls. Call it again in the next "
        "turn if you need it."
    )


@leaf(
    "tools.execute",
    reads=("_item", "_index", "approval"),
    writes=("tool_results",),
    effect=_effect,
    request=describe_call,
)
async def execute_tool(bb: Blackboard, step: Step, host: RunContext) -> None:
    """Execute one tool call. An error is also a result for the model."""
    call = current_call(bb)
    if approval_of(bb) is None:
        emit_pending_event(host, call)
    tool = find_offered_tool(host, call.name)
    approval = ApprovalRecord(call.id)
    is_called = False
    if call.name in host.snapshot.changed_tools:
        outcome = _failed_result(call, _changed_tool_text(call, is_unknown=step.outcome_unknown))
    elif step.outcome_unknown:
        outcome = _failed_result(call, UNKNOWN_OUTCOME_TEXT)
    elif tool is None:
        outcome = _failed_result(call, _unknown_tool_text(host, call))
    elif (approval := await check_approval(bb, step, host, call)).is_denied:
        outcome = _failed_result(call, approval.reason)
    else:
        is_called = True
        outcome = await _call_tool(host, step, call, is_approved=bool(approval.approval_id))
    marks = approval.marks  # of the reason, if the call was denied
    if tool is not None and is_called:
        marks = merge_marks(marks, outcome.output.marks, _marks_of_origin(tool, outcome))
    record = report_result(host, step, bb["_index"], outcome, marks)
    record = replace(
        record,
        events=(*approval.events, *record.events),
        is_denied=approval.is_denied,
        is_private=tool is not None and is_called and tool.reads_private,
        paused_seconds=approval.paused_seconds,
    )
    bb["tool_results"] = to_builtins(record)


def _marks_of_origin(tool: Tool, outcome: ToolCallResult) -> Marks:
    """Return the mark of a tool whose text is untrusted: the page, else the tool."""
    if not tool.origin.is_untrusted:
        return NO_MARKS
    sources = outcome.output.sources
    name = sources[0].path if len(sources) == 1 else tool.spec.name
    return frozenset({Mark.of(tool.origin, name)})


def _failed_result(call: ToolCall, text: str) -> ToolCallResult:
    return ToolCallResult(ToolResult(call.id, call.name, text, failed=True), 0)


async def _call_tool(
    host: RunContext, step: Step, call: ToolCall, *, is_approved: bool
) -> ToolCallResult:
    tool_context = ToolContext(
        host.user_id,
        host.project_id,
        key=f"run-{host.run_id}/{host.step_key(step)}",
        agent=host.role.name,
        allowed_urls=allowed_urls(host, call, is_approved=is_approved),
        marks=host.marks,
        shown=host.history.provenance.shown.union(host.shown),
        run_id=host.run_id,
        report=partial(_report_progress, step, call),
        emit=step.emit,
    )
    return await host.registry.call_tool(call, agent=host.role.name, context=tool_context)


def _report_progress(step: Step, call: ToolCall, message: str) -> None:
    """Show the progress of a call. The watchdog counts it as a sign of life."""
    step.progress()
    step.emit(
        SystemChunk(
            system_type="tool_progress",
            system_message=message,
            metadata={"tool": call.name, "call": call.id},
        )
    )


def _changed_tool_text(call: ToolCall, *, is_unknown: bool) -> str:
    reason = f"the tool {call.name} changed while this run was interrupted."
    if is_unknown:
        return f"Not called again: {reason} {UNKNOWN_OUTCOME_TEXT}"
    return f"Not called: {reason}"


def _unknown_tool_text(host: RunContext, call: ToolCall) -> str:
    names = sorted(host.role.tool_names)
    hint = did_you_mean(call.name, names) or f"Available: {', '.join(names)}."
    return f"There is no tool '{call.name[:80]}' here. {hint}"


def report_result(
    host: RunContext, step: Step, index: int, outcome: ToolCallResult, marks: Marks
) -> ToolResultRecord:
    """Show a tool result to the user, emit its event, and return the record for the journal."""
    result, output = outcome.result, outcome.output
    step.emit(
        ToolResultChunk(
            id=result.call_id,
            name=result.name,
            result=result.text,
            status="error" if result.failed else "success",
            sources=[ResultSource(each.path, each.lines, each.kind) for each in output.sources],
        )
    )
    record = ToolResultRecord(
        index=index,
        id=result.call_id,
        name=result.name,
        text=result.text,
        duration_ms=outcome.duration_ms,
        failed=result.failed,
        timed_out=outcome.timed_out,
        sources=output.sources,
        entry_count=output.entry_count,
        scores=output.scores,
        events=output.events,
        notices=output.notices,
        marks=marks,
        shown=output.shown,
        found_urls=output.found_urls,
    )
    host.emit(_result_event(host, record))
    return record


def _result_event(host: RunContext, record: ToolResultRecord) -> Event:
    """The event of a tool result, built from its stored record, also after a crash."""
    payload = {"tool": record.name, "call": record.id, "ms": record.duration_ms}
    kind, severity = TOOL_CALL_SUCCESS, Severity.INFO
    if record.failed:
        kind = TOOL_CALL_TIMEOUT if record.timed_out else TOOL_CALL_FAILURE
        severity, payload = Severity.ERROR, {**payload, "error": record.text[:200]}
    event = host.build_event(kind, severity, payload)
    return replace(event, marks=merge_marks(event.marks, record.marks)) if record.marks else event


@leaf("oracle.record_results", reads=("tool_results", "state"), writes=("state",))
def record_results(bb: Blackboard, host: RunContext) -> None:
    """Add the results to the transcript in call order; pass them to decision tree and rules."""
    records = {each.index: each for each in convert(bb["tool_results"], list[ToolResultRecord])}
    answer = host.pending_answer
    assert answer is not None
    max_calls = host.role.limits.max_tool_calls_per_turn
    results = tuple(
        _tool_result(call, records.get(index), None if index < max_calls else max_calls)
        for index, call in enumerate(answer.calls)
    )
    durations = tuple(
        records[index].duration_ms if index in records else None
        for index in range(len(answer.calls))
    )
    host.turns.append(Turn(answer, results, durations))
    state = host.load_state(bb)
    for index, (call, result) in enumerate(zip(answer.calls, results, strict=True)):
        host.transcript.add(result, host.count_tokens(result.text))
        if index in records:  # calls over the limit were not executed and do not count
            failed = records[index].has_tool_failed
            values = _decision_tree_input(call, result, failed=failed)
            state = host.decision_tree.on_tool_result(state, values)
    tokens = sum(record.tokens for record in records.values())
    paused = max((record.paused_seconds for record in records.values()), default=0.0)
    if tokens or paused:
        host.tokens_used += tokens
        state = replace(state, tokens_used=state.tokens_used + tokens).with_pause(paused)
    host.subagent_turns += sum(record.turns for record in records.values())
    host.interrupted_results.clear()
    host.save_state(bb, state)
    host.notifications.record_turn((each.name, each.has_tool_failed) for each in records.values())
    # First: the events of the results contain parts of their texts.
    host.read_results()
    for _, record in sorted(records.items()):
        host.sources.update(dict.fromkeys(record.sources))
        host.shown.update(dict.fromkeys(record.shown))
        host.found_urls.update(dict.fromkeys(record.found_urls))
        _handle_result(host, record)
    emit_event(host, AGENT_TURN_END, Severity.DEBUG, turn=state.turn)


def _handle_result(host: RunContext, record: ToolResultRecord) -> None:
    """Handle the event of a result, and the events and notices that the tool itself returned."""
    handle_event(host, _result_event(host, record), result=tool_result_for_rules(record))
    if record.subagent:
        kind = SUBAGENT_FAILED if record.failed else SUBAGENT_COMPLETE
        severity = Severity.WARNING if record.failed else Severity.INFO
        usage = {"ms": record.duration_ms, "turns": record.turns, "tokens": record.tokens}
        report = record.text[:200]
        emit_event(host, kind, severity, agent=record.subagent, **usage, report=report)
    for event in record.events:
        handle_event(host, event)
    host.notifications.inbox.schedule(record.notices)


def _decision_tree_input(call: ToolCall, result: ToolResult, *, failed: bool) -> dict[str, Any]:
    return {
        "name": call.name,
        "arguments": call.arguments,
        "result": result.text,
        "failed": failed,
    }


def _tool_result(
    call: ToolCall, record: ToolResultRecord | None, exceeded_limit: int | None
) -> ToolResult:
    """The result of a call, or why there is none. `exceeded_limit` is the limit of calls."""
    if record is not None:
        return record.message()
    text = "The call failed with an internal error in Dodona. Repeating it may not help."
    if exceeded_limit is not None:
        text = _over_limit_text(exceeded_limit)
    return ToolResult(call.id, call.name, text, failed=True)
