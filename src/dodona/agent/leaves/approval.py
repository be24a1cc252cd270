"""Approval of tool calls: rules may deny a call; rules or untrusted text may require an approval.

The decision and the wait are separate steps: after a crash, a decision is not made again, and a
call that waits for approval has not started. The leaf that executes the call checks the approval
again, so a tree without these steps, or one that ignores them, executes no call that needs one.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from time import time
from typing import Any

from msgspec import convert, to_builtins
from msgspec.structs import replace

from dodona.agent.conversation.exchange import parse_arguments
from dodona.agent.events.dispatch import handle_event
from dodona.agent.run_context.context import RunContext
from dodona.agent.run_context.records import ApprovalRecord
from dodona.agent.safety.rule_trees import run_rule_tree
from dodona.agent.safety.trust import approval_reason, call_hash
from dodona.core.chunks import ApprovalChunk
from dodona.core.domain.approvals import Approval, Decision, NewApproval
from dodona.core.domain.rules import Deny, RequireApproval, RuleAction, RunTree
from dodona.core.domain.trust import NO_MARKS, Marks
from dodona.core.errors import BadRequest
from dodona.core.events import TOOL_CALL_HELD, TOOL_CALL_PENDING, Event, Severity
from dodona.core.messages import ToolCall
from dodona.core.ports.tools import Tool
from dodona.trees import Blackboard, Step, leaf


def find_offered_tool(host: RunContext, name: str) -> Tool | None:
    """Return a tool by name, if it was offered to the model."""
    return host.registry.toolbox.find(name) if name in host.role.tool_names else None


def current_call(bb: Blackboard) -> ToolCall:
    """Return the current call of the loop over tool calls."""
    return convert(bb["_item"], ToolCall)


def approval_of(bb: Blackboard) -> ApprovalRecord | None:
    """Return the approval record of the current call; None if there is none."""
    if not isinstance(bb["approval"], dict):
        return None  # none yet, or the list that joins those of an earlier turn
    record = convert(bb["approval"], ApprovalRecord)
    return record if record.call_id == bb["_item"]["id"] else None


def emit_pending_event(host: RunContext, call: ToolCall) -> Event:
    """Emit the event of a tool call that is about to start, and return it."""
    event = _pending_event(host, call)
    host.emit(event)
    return event


def _pending_event(host: RunContext, call: ToolCall) -> Event:
    arguments = parse_arguments(call.arguments)
    payload = {"tool": call.name, "call": call.id, "arguments": arguments}
    return host.build_event(TOOL_CALL_PENDING, Severity.DEBUG, payload)


@leaf("needs-approval?", reads=("_item",))
def needs_approval(bb: Blackboard, host: RunContext) -> bool:
    """Whether a rule decides about tool calls, or this call requires approval."""
    if host.notifications.rules.listens_to(TOOL_CALL_PENDING):
        return True
    call = current_call(bb)
    tool = find_offered_tool(host, call.name)
    return tool is not None and bool(approval_reason(host, tool, call))


def describe_call(bb: Blackboard, host: RunContext, arguments: Mapping[str, Any]) -> str:
    """Return the request of a step about the current call; the journal compares requests."""
    del host, arguments
    return f"{bb['_item']['name']}\0{bb['_item']['arguments']}"


@leaf(
    "tools.request_approval",
    reads=("_item",),
    writes=("approval",),
    effect="none",
    request=describe_call,
)
async def request_approval(bb: Blackboard, step: Step, host: RunContext) -> None:
    """Evaluate rules for a tool call; request the user's approval if it is required."""
    call = current_call(bb)
    event = emit_pending_event(host, call)
    events: list[Event] = []
    verdict, marks = await _decide(host, step, handle_event(host, event), events)
    tool = find_offered_tool(host, call.name)
    if verdict is None and tool is not None and (reason := approval_reason(host, tool, call)):
        payload = {"tool": call.name, "call": call.id, "reason": reason}
        host.emit(host.build_event(TOOL_CALL_HELD, Severity.WARNING, payload))
        verdict = RequireApproval(reason)
    record = ApprovalRecord(call.id, events=tuple(events), marks=marks)
    if isinstance(verdict, Deny):
        reason = f"{call.name} was denied: {verdict.reason}"
        record = replace(record, decision=Decision.DENIED, reason=reason)
    elif verdict is not None:
        try:
            approval = await _request_decision(host, step, call, verdict)
        except BadRequest as error:
            reason = f"{call.name} needs an approval, but {error.message} {verdict.reason}"
            record = replace(record, decision=Decision.DENIED, reason=reason)
            bb["approval"] = to_builtins(record)
            return
        # The answer may take long and the process may stop first: make all steps so far durable.
        await host.journal.flush()
        record = replace(
            record,
            decision=Decision.PENDING,
            reason=verdict.reason,
            approval_id=approval.call_id,
        )
        step.emit(
            ApprovalChunk(
                id=call.id,
                approval=approval.call_id,
                name=call.name,
                arguments=approval.arguments,
                reason=approval.reason,
                marks=approval.marks,
                expires_at=float(approval.expires_at),
            )
        )
    bb["approval"] = to_builtins(record)


async def check_approval(
    bb: Blackboard, step: Step, host: RunContext, call: ToolCall
) -> ApprovalRecord:
    """Return the decision about a call that is about to start: the last gate.

    Whatever the tree did, a call that needs an approval is denied unless a person has approved it
    with exactly these arguments, and has not approved it for another step.
    """
    record = approval_of(bb) or await _decide_unrequested(host, step, call)
    if record.is_denied:
        return record
    tool = find_offered_tool(host, call.name)
    reason = record.reason or (approval_reason(host, tool, call) if tool is not None else "")
    if not (reason or record.approval_id):
        return record
    is_approved = await host.deps.storage.approvals.use(
        host.user_id,
        host.run_id,
        record.approval_id,
        arguments_hash=call_hash(call),
        step_key=host.step_key(step),
    )
    if is_approved:
        return record
    text = f"{call.name} was not called: no person has approved this call. {reason}".rstrip()
    return replace(record, decision=Decision.DENIED, reason=text)


async def _decide_unrequested(host: RunContext, step: Step, call: ToolCall) -> ApprovalRecord:
    """Evaluate the rules for a call whose tree did not request a decision."""
    if not host.notifications.rules.listens_to(TOOL_CALL_PENDING):
        return ApprovalRecord(call.id)
    events: list[Event] = []
    verdicts = handle_event(host, _pending_event(host, call))
    verdict, marks = await _decide(host, step, verdicts, events)
    reason = verdict.reason if verdict is not None else ""
    record = ApprovalRecord(call.id, reason=reason, events=tuple(events), marks=marks)
    if isinstance(verdict, Deny):
        reason = f"{call.name} was denied: {verdict.reason}"
        return replace(record, decision=Decision.DENIED, reason=reason)
    return record


async def _decide(
    host: RunContext, step: Step, verdicts: list[RuleAction], events: list[Event]
) -> tuple[Deny | RequireApproval | None, Marks]:
    """The first denial, else the first required approval, with the marks of its reason.

    Rule trees run in order.
    """
    requirement: tuple[RequireApproval, Marks] | None = None
    for fired in verdicts:
        action = fired.action
        if isinstance(action, RunTree):
            denial, event = await run_rule_tree(host, step, fired)
            events += [event] if event else []
            action = Deny(denial) if denial else None
        if isinstance(action, Deny):
            return action, fired.marks
        if isinstance(action, RequireApproval):
            requirement = requirement or (action, fired.marks)
    return requirement or (None, NO_MARKS)


async def _request_decision(
    host: RunContext, step: Step, call: ToolCall, requirement: RequireApproval
) -> Approval:
    seconds = requirement.timeout_seconds or host.deps.policy.approval_timeout
    # Some models reuse call IDs in every turn: an approval must not apply to another call.
    suffix = blake2b(host.step_key(step).encode(), digest_size=3).hexdigest()
    return await host.deps.storage.approvals.request(
        host.user_id,
        NewApproval(
            run_id=host.run_id,
            call_id=f"{call.id}~{suffix}",
            tool=call.name,
            arguments=parse_arguments(call.arguments),
            arguments_hash=call_hash(call),
            marks=host.marks,
            reason=requirement.reason,
            expires_at=time() + seconds,
        ),
    )


@leaf("awaits-approval?", reads=("_item", "approval"))
def awaits_approval(bb: Blackboard) -> bool:
    """Whether the current call waits for approval."""
    approval = approval_of(bb)
    return approval is not None and approval.decision is Decision.PENDING


@leaf("tools.await_approval", reads=("_item", "approval"), writes=("approval",), effect="none")
async def await_approval(bb: Blackboard, step: Step, host: RunContext) -> None:
    """Wait for the user's decision. The run's timers are paused meanwhile."""
    record = convert(bb["approval"], ApprovalRecord)
    # Makes the approval chunk visible to other processes, and after a crash.
    await host.journal.flush()
    approvals, run_id = host.deps.storage.approvals, host.run_id
    approval = await approvals.get(host.user_id, run_id, record.approval_id)
    approval = await host.deps.approvals.wait_for_decision(host.user_id, approval, step)
    is_approved = approval.decision is Decision.APPROVED
    bb["approval"] = to_builtins(
        replace(
            record,
            decision=Decision.APPROVED if is_approved else Decision.DENIED,
            reason="" if is_approved else _denial_text(approval),
            paused_seconds=max(0.0, (approval.decided_at or time()) - approval.asked_at),
        )
    )


def _denial_text(approval: Approval) -> str:
    if approval.decision is Decision.EXPIRED:
        return f"{approval.tool} was not called: the approval expired. {approval.reason}"
    note = f" Their note: {approval.note}" if approval.note else ""
    return f"{approval.tool} was not called: the user denied it.{note}"
