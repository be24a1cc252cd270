"""Approval of tool calls: rules may deny a call; rules or untrusted text may require an approval.

The decision and the wait are separate steps: after a crash, a decision is not made again, and a
call that waits for approval has not started.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from time import time
from typing import Any, Final, cast

from dodona.agent.conversation.exchange import parse_arguments
from dodona.agent.events.dispatch import handle_event, self_notice_event, set_pack_state
from dodona.agent.run_context.context import RunContext
from dodona.agent.run_context.registries import leaf
from dodona.agent.safety.rule_trees import run_rule_tree
from dodona.agent.safety.untrusted import approval_reason
from dodona.core import chunks
from dodona.core.domain.approvals import Approval, Decision, NewApproval
from dodona.core.domain.rules import Deny, NotifySelf, RequireApproval, RuleAction, RunTree
from dodona.core.events import TOOL_CALL_HELD, TOOL_CALL_PENDING, Event, Severity
from dodona.core.messages import ToolCall
from dodona.core.ports.tools import Tool
from dodona.trees import Blackboard, Step

PENDING: Final = "asked"
APPROVED: Final = "allowed"
DENIED: Final = "refused"


def find_offered_tool(host: RunContext, name: str) -> Tool | None:
    """Return a tool by name, if it was offered to the model."""
    return host.deps.toolbox.find(name) if name in host.role.tool_names else None


def approval_of(bb: Blackboard) -> Mapping[str, Any] | None:
    """Return the approval record of the current call; None if there is none."""
    record: Any = bb["approval"]
    if not isinstance(record, dict):
        return None
    approval = cast("dict[str, Any]", record)
    return approval if approval["id"] == bb["_item"]["id"] else None


def emit_pending_call(host: RunContext, step: Step, call: ToolCall) -> Event:
    """Show a tool call to the user before it starts, and return its event."""
    arguments = parse_arguments(call.arguments)
    step.emit(chunks.tool_call(id=call.id, name=call.name, arguments=arguments, status="pending"))
    payload = {"tool": call.name, "call": call.id, "arguments": arguments}
    event = host.build_event(TOOL_CALL_PENDING, Severity.DEBUG, payload)
    host.emit(event)
    return event


@leaf("needs-approval?", reads=("_item",))
def needs_approval(bb: Blackboard, host: RunContext) -> bool:
    """Whether a rule decides about tool calls, or this call requires approval."""
    if host.notifications.rules.listens_to(TOOL_CALL_PENDING):
        return True
    tool = find_offered_tool(host, bb["_item"]["name"])
    return tool is not None and bool(approval_reason(host, tool))


def _request_key(bb: Blackboard, host: RunContext, arguments: Mapping[str, Any]) -> str:
    del host, arguments
    return f"{bb['_item']['name']}\0{bb['_item']['arguments']}"


@leaf(
    "tools.request_approval",
    reads=("_item",),
    writes=("approval",),
    effect="none",
    request=_request_key,
)
async def request_approval(bb: Blackboard, step: Step, host: RunContext) -> None:
    """Evaluate rules for a tool call; request the user's approval if it is required."""
    host.is_live = True
    call = ToolCall(**bb["_item"])
    event = emit_pending_call(host, step, call)
    events: list[Event] = []
    verdict = await _decide(host, step, handle_event(host, event), events)
    tool = find_offered_tool(host, call.name)
    if verdict is None and tool is not None and (reason := approval_reason(host, tool)):
        payload = {"tool": call.name, "call": call.id, "reason": reason}
        host.emit(host.build_event(TOOL_CALL_HELD, Severity.WARNING, payload))
        verdict = RequireApproval(reason)
    record: dict[str, Any] = {"id": call.id, "outcome": APPROVED, "reason": ""}
    record["events"] = [each.as_json() for each in events]
    if isinstance(verdict, Deny):
        record.update(outcome=DENIED, reason=f"{call.name} was denied: {verdict.reason}")
    elif verdict is not None:
        approval = await _request_decision(host, step, call, verdict)
        # The answer may take long and the process may stop first: make all steps so far durable.
        await host.journal.flush()
        record.update(outcome=PENDING, reason=verdict.reason, approval=approval.call_id)
        step.emit(
            chunks.approval(
                id=call.id,
                approval=approval.call_id,
                name=call.name,
                arguments=approval.arguments,
                reason=approval.reason,
                expires_at=approval.expires_at,
            )
        )
    bb["approval"] = record


async def _decide(
    host: RunContext, step: Step, verdicts: list[RuleAction], events: list[Event]
) -> Deny | RequireApproval | None:
    """The first denial, else the first required approval. Rule trees run in order."""
    requirement: RequireApproval | None = None
    for fired in verdicts:
        action = fired.action
        if isinstance(action, RunTree):
            outcome = await run_rule_tree(host, step, fired)
            if outcome.state:
                set_pack_state(host, fired.pack, outcome.state)
            if outcome.notify:
                events.append(self_notice_event(host, NotifySelf(outcome.notify), fired.rule))
            action = Deny(outcome.deny) if outcome.deny else None
        if isinstance(action, Deny):
            return action
        if isinstance(action, RequireApproval):
            requirement = requirement or action
    return requirement


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
            reason=requirement.reason,
            expires_at=time() + seconds,
        ),
    )


@leaf("awaits-approval?", reads=("_item", "approval"))
def awaits_approval(bb: Blackboard) -> bool:
    """Whether the current call waits for approval."""
    approval = approval_of(bb)
    return approval is not None and approval["outcome"] == PENDING


@leaf("tools.await_approval", reads=("_item", "approval"), writes=("approval",), effect="none")
async def await_approval(bb: Blackboard, step: Step, host: RunContext) -> None:
    """Wait for the user's decision. The run's timers are paused meanwhile."""
    host.is_live = True
    record: dict[str, Any] = bb["approval"]
    # Makes the approval chunk visible to other processes, and after a crash.
    await host.journal.flush()
    storage = host.deps.storage
    approval = await storage.approvals.get(host.user_id, host.run_id, record["approval"])
    approval = await host.deps.approvals.wait_for_decision(host.user_id, approval, step)
    waited = max(0.0, (approval.decided_at or time()) - approval.asked_at)
    if approval.decision is Decision.APPROVED:
        bb["approval"] = {**record, "outcome": APPROVED, "rested": waited}
        return
    reason = _denial_text(approval)
    bb["approval"] = {**record, "outcome": DENIED, "rested": waited, "reason": reason}


def _denial_text(approval: Approval) -> str:
    if approval.decision is Decision.EXPIRED:
        return f"{approval.tool} was not called: the approval expired. {approval.reason}"
    note = f" Their note: {approval.note}" if approval.note else ""
    return f"{approval.tool} was not called: the user denied it.{note}"
