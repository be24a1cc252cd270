"""Leave to make a call: rules and wariness may refuse it, or want a person asked first.

Deciding and waiting are steps of their own: what was decided is not decided again after a crash,
and a call that waits has not begun.
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
    """The tool of that name, if it was offered."""
    return host.deps.toolbox.find(name) if name in host.role.tool_names else None


def approval_of(bb: Blackboard) -> Mapping[str, Any] | None:
    """What was decided about the call in hand, if anything."""
    kept: Any = bb["approval"]
    if not isinstance(kept, dict):
        return None
    leave = cast("dict[str, Any]", kept)
    return leave if leave["id"] == bb["_item"]["id"] else None


def emit_pending_call(host: RunContext, step: Step, call: ToolCall) -> Event:
    """Show a call before it is made."""
    arguments = parse_arguments(call.arguments)
    step.emit(chunks.tool_call(id=call.id, name=call.name, arguments=arguments, status="pending"))
    payload = {"tool": call.name, "call": call.id, "arguments": arguments}
    event = host.build_event(TOOL_CALL_PENDING, Severity.DEBUG, payload)
    host.emit(event)
    return event


@leaf("needs-approval?", reads=("_item",))
def needs_approval(bb: Blackboard, host: RunContext) -> bool:
    """Is there a rule about calls, or is this one that is held?"""
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
    """Let the rules decide about a call; ask a person where they, or wariness, want one asked."""
    host.is_live = True
    call = ToolCall(**bb["_item"])
    event = emit_pending_call(host, step, call)
    told: list[Event] = []
    decided = await _decide(host, step, handle_event(host, event), told)
    tool = find_offered_tool(host, call.name)
    if decided is None and tool is not None and (reason := approval_reason(host, tool)):
        payload = {"tool": call.name, "call": call.id, "reason": reason}
        host.emit(host.build_event(TOOL_CALL_HELD, Severity.WARNING, payload))
        decided = RequireApproval(reason)
    leave: dict[str, Any] = {"id": call.id, "outcome": APPROVED, "reason": ""}
    leave["events"] = [each.as_json() for each in told]
    if isinstance(decided, Deny):
        leave.update(outcome=DENIED, reason=f"{call.name} was refused: {decided.reason}")
    elif decided is not None:
        asked = await _request_decision(host, step, call, decided)
        # A person may take long, and the process may be gone by then: what led here must not.
        await host.journal.flush()
        leave.update(outcome=PENDING, reason=decided.reason, approval=asked.call_id)
        step.emit(
            chunks.approval(
                id=call.id,
                approval=asked.call_id,
                name=call.name,
                arguments=asked.arguments,
                reason=asked.reason,
                expires_at=asked.expires_at,
            )
        )
    bb["approval"] = leave


async def _decide(
    host: RunContext, step: Step, verdicts: list[RuleAction], events: list[Event]
) -> Deny | RequireApproval | None:
    """The first refusal, or else the first wish for a person; trees are asked as they come."""
    asking: RequireApproval | None = None
    for fired in verdicts:
        action = fired.action
        if isinstance(action, RunTree):
            wanted = await run_rule_tree(host, step, fired)
            if wanted.state:
                set_pack_state(host, fired.pack, wanted.state)
            if wanted.notify:
                events.append(self_notice_event(host, NotifySelf(wanted.notify), fired.rule))
            action = Deny(wanted.deny) if wanted.deny else None
        if isinstance(action, Deny):
            return action
        if isinstance(action, RequireApproval):
            asking = asking or action
    return asking


async def _request_decision(
    host: RunContext, step: Step, call: ToolCall, requirement: RequireApproval
) -> Approval:
    seconds = requirement.timeout_seconds or host.deps.policy.approval_timeout
    # Some models give their calls the same ids in every turn: what was allowed once must not
    # allow another call.
    place = blake2b(host.step_key(step).encode(), digest_size=3).hexdigest()
    return await host.deps.storage.approvals.request(
        host.user_id,
        NewApproval(
            run_id=host.claim.run_id,
            call_id=f"{call.id}~{place}",
            tool=call.name,
            arguments=parse_arguments(call.arguments),
            reason=requirement.reason,
            expires_at=time() + seconds,
        ),
    )


@leaf("awaits-approval?", reads=("_item", "approval"))
def awaits_approval(bb: Blackboard) -> bool:
    """Does the call in hand wait for a person?"""
    leave = approval_of(bb)
    return leave is not None and leave["outcome"] == PENDING


@leaf("tools.await_approval", reads=("_item", "approval"), writes=("approval",), effect="none")
async def await_approval(bb: Blackboard, step: Step, host: RunContext) -> None:
    """Wait for the person; the run's clocks stand still meanwhile."""
    host.is_live = True
    leave: dict[str, Any] = bb["approval"]
    # Whoever looks from elsewhere, or after a crash, should see what is asked.
    await host.journal.flush()
    storage = host.deps.storage
    asked = await storage.approvals.get(host.user_id, host.claim.run_id, leave["approval"])
    decided = await host.deps.approvals.wait_for_decision(host.user_id, asked, step)
    rested = max(0.0, (decided.decided_at or time()) - decided.asked_at)
    if decided.decision is Decision.APPROVED:
        bb["approval"] = {**leave, "outcome": APPROVED, "rested": rested}
        return
    bb["approval"] = {**leave, "outcome": DENIED, "rested": rested, "reason": _denial_text(decided)}


def _denial_text(approval: Approval) -> str:
    if approval.decision is Decision.EXPIRED:
        return f"{approval.tool} was not called: nobody allowed it in time. {approval.reason}"
    said = f" They said: {approval.note}" if approval.note else ""
    return f"{approval.tool} was not called: the user refused it.{said}"
