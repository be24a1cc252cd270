"""A call of a model outside any run: reserved, streamed, settled, like those within one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dodona.agent.model_calls import BillingScope, ModelCall, call_metered
from dodona.agent.run_context.deps import RunDeps
from dodona.core.ports.model import Done, ModelEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class BackgroundCall(ModelCall):
    """A call, and who pays for it."""

    user_id: str
    agent_id: str
    session_key: str


def _ignore(event: ModelEvent) -> None:
    del event


async def call_outside_run(
    means: RunDeps, call: BackgroundCall, hear: Callable[[ModelEvent], None] = _ignore
) -> Done:
    """The whole answer; pieces are heard as they come.

    What was used is settled whatever happens, also when it is cancelled. If the process dies,
    whoever opens the store next settles it.
    """
    storage = means.storage
    payer = BillingScope(
        meter=means.meter,
        audit=storage.audit,
        reserve=storage.commit,
        settle=storage.commit,
        user_id=call.user_id,
        agent_id=call.agent_id,
        session_key=call.session_key,
        owner=storage.owner,
    )
    return await call_metered(payer, call, hear)
