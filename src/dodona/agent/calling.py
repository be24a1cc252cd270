"""The calls of a run: its own budget lines, in its own journal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dodona.agent.heard import PartialAnswer
from dodona.agent.model_calls import BillingScope, ModelCall, call_metered
from dodona.agent.run_context.context import RunContext
from dodona.core.domain.budgets import Operation
from dodona.core.ports.model import Done, ModelEvent


async def call_in_run(
    host: RunContext, call: ModelCall, show: Callable[[ModelEvent], None], heard: PartialAnswer
) -> Done:
    """The whole answer; pieces are shown as they come."""

    def hear(event: ModelEvent) -> None:
        heard.add(event)
        show(event)

    return await call_metered(_payer(host), call, hear)


def _payer(host: RunContext) -> BillingScope:
    async def settle(operation: Operation[Any]) -> None:
        host.journal.ride(operation)

    claim = host.claim
    return BillingScope(
        meter=host.means.meter,
        audit=host.means.storage.audit,
        reserve=host.journal.commit,
        settle=settle,
        user_id=host.user_id,
        agent_id=host.agent_id,
        session_key=host.session_key,
        run_id=claim.run_id,
        attempt=claim.attempt,
    )
