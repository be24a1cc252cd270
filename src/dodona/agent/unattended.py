"""A call of a model outside any run: reserved, streamed, settled, like those within one."""

from __future__ import annotations

from dodona.agent.means import Means
from dodona.agent.paying import ModelCall, Payer, pay
from dodona.core.model import Done, ModelEvent


async def call_unattended(
    means: Means, call: ModelCall, *, user_id: str, agent_id: str, session_key: str
) -> Done:
    """The whole answer. What was used is settled whatever happens, also when it is cancelled.

    If the process dies, whoever opens the store next settles it.
    """
    storage = means.storage
    payer = Payer(
        meter=means.meter,
        reserve=storage.commit,
        settle=storage.commit,
        user_id=user_id,
        agent_id=agent_id,
        session_key=session_key,
        owner=storage.owner,
    )
    return await pay(payer, call, _ignore)


def _ignore(event: ModelEvent) -> None:
    del event
