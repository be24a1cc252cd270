"""Waiting for approvals. A decision wakes the run at once; in another process within a second."""

from __future__ import annotations

import asyncio
from time import time
from typing import Final

from dodona.core.domain.approvals import Approval, Decision
from dodona.core.errors import Conflict
from dodona.store.notifications.approvals import Approvals
from dodona.trees import Step

POLL_SECONDS: Final = 1.0  # for decisions made in another process


class ApprovalGate:
    """Wakes runs of this process that wait for an approval. Decisions are in the store."""

    def __init__(self, approvals: Approvals) -> None:
        self._approvals = approvals
        self._waiters: dict[tuple[int, str], asyncio.Event] = {}

    async def decide(
        self,
        user_id: str,
        run_id: int,
        call_id: str,
        *,
        decision: Decision,
        by: str,
        note: str = "",
    ) -> Approval:
        """Store a decision and wake the run if it waits in this process."""
        approval = await self._approvals.decide(
            user_id, run_id, call_id, decision=decision, by=by, note=note
        )
        if (waiter := self._waiters.get((run_id, call_id))) is not None:
            waiter.set()
        return approval

    async def wait_for_decision(self, user_id: str, approval: Approval, step: Step) -> Approval:
        """Wait for a decision; an approval that expires is denied."""
        key = (approval.run_id, approval.call_id)
        waiter = self._waiters.setdefault(key, asyncio.Event())
        try:
            with step.pause_timers():
                while approval.decision is Decision.PENDING:
                    seconds_left = approval.expires_at - time()
                    if seconds_left <= 0:
                        return await self._expire(user_id, approval)
                    await _wait(waiter, min(seconds_left, POLL_SECONDS))
                    step.progress()
                    approval = await self._approvals.get(user_id, *key)
        finally:
            self._waiters.pop(key, None)
        return approval

    async def _expire(self, user_id: str, approval: Approval) -> Approval:
        key = (approval.run_id, approval.call_id)
        try:
            decide = self._approvals.decide
            return await decide(user_id, *key, decision=Decision.EXPIRED, by="dodona")
        except Conflict:  # decided in the meantime
            return await self._approvals.get(user_id, *key)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
