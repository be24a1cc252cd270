"""One call of a model: reserved, streamed, settled. There is no other way to a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import time

from dodona.agent.heard import Heard
from dodona.agent.host import Host
from dodona.core.errors import Fault, ProviderError
from dodona.core.model import (
    ChosenModel,
    Done,
    ModelEvent,
    ModelRequest,
    ModelStream,
    Usage,
)
from dodona.core.spending import CallPlan, Hold, Used, is_silent, used_by

# Of these the provider has made nothing, and bills nothing.
_UNBILLED = frozenset(
    {Fault.CONNECTION, Fault.RATE_LIMITED, Fault.REFUSED, Fault.UNAUTHORISED, Fault.TOO_LONG}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """A call that is about to be made; `step_key` names it in the journal."""

    chosen: ChosenModel
    request: ModelRequest
    step_key: str
    input_tokens: int


async def call_model(
    host: Host, call: ModelCall, show: Callable[[ModelEvent], None], heard: Heard
) -> Done:
    """The whole answer; pieces are shown as they come.

    What was used is settled whatever happens: of a call that was cut, as far as it is known.
    """
    plan = _plan(host, call)
    hold = await host.journal.commit(host.means.meter.reserve(plan))
    stream: ModelStream | None = None
    try:
        async with call.chosen.model.stream(call.request) as stream:
            async for event in stream:
                if type(event) is Done:
                    _settle(host, hold, plan, used_by(event))
                    return event
                heard.add(event)
                show(event)
    except BaseException as error:
        _settle(host, hold, plan, used_by_cut(plan, heard, stream, error, count=host.count))
        raise
    raise ProviderError(
        "the answer ended without a finish.", fault=Fault.CUT, provider=plan.provider
    )


def _plan(host: Host, call: ModelCall) -> CallPlan:
    model = call.chosen.model
    return CallPlan(
        user_id=host.user_id,
        agent_id=host.agent_id,
        session_key=host.session_key,
        run_id=host.claim.run_id,
        attempt=host.claim.attempt,
        step_key=call.step_key,
        provider=model.provider,
        model=model.name,
        input_tokens=call.input_tokens,
        max_output_tokens=call.request.max_tokens or call.chosen.max_tokens,
        at=time(),
        fallbacks=call.chosen.fallbacks,
    )


def _settle(host: Host, hold: Hold, plan: CallPlan, used: tuple[Used, ...]) -> None:
    host.journal.ride(host.means.meter.settle(hold, plan, used))


def used_by_cut(
    plan: CallPlan,
    heard: Heard,
    stream: ModelStream | None,
    error: BaseException,
    *,
    count: Callable[[str], int],
) -> tuple[Used, ...]:
    """As the provider told so far; else what was sent and heard, counted here."""
    told = Usage() if stream is None else stream.usage
    if not is_silent(told):
        return (Used(plan.provider, plan.model, told),)
    said = heard.text + heard.thinking + heard.arguments
    if not said and isinstance(error, ProviderError) and error.fault in _UNBILLED:
        return ()
    counted = Usage(plan.input_tokens, count(said) if said else 0)
    return (Used(plan.provider, plan.model, counted, estimated=True),)
