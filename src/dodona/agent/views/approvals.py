"""Views of approvals: pending calls, and the decision about one."""

from __future__ import annotations

from dodona.agent.run_context.approvals import ApprovalGate
from dodona.core.domain.approvals import Approval, Decision
from dodona.store.notifications.approvals import Approvals


class ApprovalViews:
    """Approvals of all users; each call names the user."""

    def __init__(self, approvals: Approvals, gate: ApprovalGate) -> None:
        self._approvals = approvals
        self._gate = gate

    async def pending(self, user_id: str) -> list[Approval]:
        """Tool calls that wait for this user's approval, oldest first."""
        return await self._approvals.pending(user_id)

    async def decide(
        self, user_id: str, run_id: int, call_id: str, *, approved: bool, note: str = ""
    ) -> Approval:
        """Approve or deny a call. The waiting run continues at once.

        The model's own call ID is accepted if only one pending call has it.
        """
        decision = Decision.APPROVED if approved else Decision.DENIED
        resolved_id = await self._resolve_call_id(user_id, run_id, call_id)
        return await self._gate.decide(
            user_id, run_id, resolved_id, decision=decision, by=user_id, note=note
        )

    async def _resolve_call_id(self, user_id: str, run_id: int, call_id: str) -> str:
        pending = [a for a in await self._approvals.pending(user_id) if a.run_id == run_id]
        matches = [a.call_id for a in pending if a.call_id.rpartition("~")[0] == call_id]
        return matches[0] if len(matches) == 1 else call_id
