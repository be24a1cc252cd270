"""A call of a model outside any run: reserved, streamed, settled, like those within one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import time

from dodona.agent.calling import used_by_cut
from dodona.agent.heard import Heard
from dodona.agent.means import Means
from dodona.core.errors import Fault, ProviderError
from dodona.core.model import ChosenModel, Done, ModelEvent, ModelRequest, ModelStream
from dodona.core.spending import CallPlan, used_by


@dataclass(frozen=True, slots=True, kw_only=True)
class UnattendedCall:
    """`step_key` says in the books what it was for."""

    user_id: str
    agent_id: str
    session_key: str
    step_key: str
    chosen: ChosenModel
    request: ModelRequest
    input_tokens: int


def _ignore(event: ModelEvent) -> None:
    del event


async def call_unattended(
    means: Means, call: UnattendedCall, hear: Callable[[ModelEvent], None] = _ignore
) -> Done:
    """The whole answer; pieces are heard as they come.

    What was used is settled whatever happens, also when it is cancelled. If the process dies,
    whoever opens the store next settles it.
    """
    plan = _plan(means, call)
    storage, meter = means.storage, means.meter
    hold = await storage.commit(meter.reserve(plan))
    heard = Heard()
    stream: ModelStream | None = None
    try:
        async with call.chosen.model.stream(call.request) as stream:
            done = await _listened(stream, heard, hear, plan.provider)
    except BaseException as error:

        def count(text: str) -> int:
            return means.counter.count(text, plan.model)

        used = used_by_cut(plan, heard, stream, error, count=count)
        await storage.commit(meter.settle(hold, plan, used))
        raise
    await storage.commit(meter.settle(hold, plan, used_by(done)))
    return done


async def _listened(
    stream: ModelStream, heard: Heard, hear: Callable[[ModelEvent], None], provider: str
) -> Done:
    async for event in stream:
        if type(event) is Done:
            return event
        heard.add(event)
        hear(event)
    raise ProviderError("the answer ended without a finish.", fault=Fault.CUT, provider=provider)


def _plan(means: Means, call: UnattendedCall) -> CallPlan:
    chosen = call.chosen
    return CallPlan(
        user_id=call.user_id,
        agent_id=call.agent_id,
        session_key=call.session_key,
        run_id=None,
        attempt=0,
        step_key=call.step_key,
        provider=chosen.model.provider,
        model=chosen.model.name,
        input_tokens=call.input_tokens,
        max_output_tokens=call.request.max_tokens or chosen.max_tokens,
        at=time(),
        fallbacks=chosen.fallbacks,
        owner=means.storage.owner,
    )
