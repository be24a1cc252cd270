"""Approvals for people: which calls wait, and the decision about one."""

from __future__ import annotations

from typing import Any

from dodona.agent.run_context.approvals import ApprovalGate
from dodona.agent.views.documents import iso
from dodona.core.domain.approvals import Approval, Decision
from dodona.store.notifications.approvals import Approvals


class ApprovalViews:
    """The approvals of all users; every call says whose."""

    def __init__(self, approvals: Approvals, gate: ApprovalGate) -> None:
        self._approvals = approvals
        self._gate = gate

    async def pending(self, user_id: str) -> list[dict[str, Any]]:
        """The calls that wait for this user, the oldest first."""
        return [_approval_json(each) for each in await self._approvals.pending(user_id)]

    async def decide(
        self, user_id: str, run_id: int, call_id: str, *, approved: bool, note: str = ""
    ) -> dict[str, Any]:
        """Allow a call, or refuse it; whoever waits goes on at once.

        The id that the model gave it is enough as long as only one call of that id waits.
        """
        decision = Decision.APPROVED if approved else Decision.DENIED
        which = await self._resolve_call_id(user_id, run_id, call_id)
        decided = await self._gate.decide(
            user_id, run_id, which, decision=decision, by=user_id, note=note
        )
        return _approval_json(decided)

    async def _resolve_call_id(self, user_id: str, run_id: int, call_id: str) -> str:
        waiting = [a for a in await self._approvals.pending(user_id) if a.run_id == run_id]
        named = [a.call_id for a in waiting if a.call_id.rpartition("~")[0] == call_id]
        return named[0] if len(named) == 1 else call_id


def _approval_json(approval: Approval) -> dict[str, Any]:
    return {
        "run_id": approval.run_id,
        "call": approval.call_id,
        "tool": approval.tool,
        "arguments": dict(approval.arguments),
        "reason": approval.reason,
        "asked_at": iso(approval.asked_at),
        "expires_at": iso(approval.expires_at),
        "decision": approval.decision.value,
        "decided_at": iso(approval.decided_at),
        "decided_by": approval.decided_by,
        "note": approval.note,
    }
