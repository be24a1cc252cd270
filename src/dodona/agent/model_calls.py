"""One call of a model: reserved, streamed, settled. There is no other way to a model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from time import time
from typing import Any, TypeAlias

from dodona.agent.run_context.context import PartialAnswer, RunContext
from dodona.agent.run_context.deps import RunDeps
from dodona.core.domain.audit import Audit, AuditEntry
from dodona.core.domain.budgets import (
    CallPlan,
    Meter,
    ModelUsage,
    Operation,
    Reservation,
    has_no_usage,
)
from dodona.core.errors import BudgetExceeded, Fault, ProviderError
from dodona.core.ports.model import (
    ChosenModel,
    Done,
    FailedAttempt,
    Model,
    ModelEvent,
    ModelRequest,
    ModelStream,
    Usage,
)

Commit: TypeAlias = Callable[[Operation[Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """A call that is about to be made; `step_key` says in the books what it was for."""

    chosen: ChosenModel
    request: ModelRequest
    step_key: str
    input_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BillingScope:
    """Who pays for calls. What is settled may be written later than what is reserved.

    Within a run it is the run's; outside it has an `owner`, the process.
    """

    meter: Meter
    audit: Audit
    reserve: Commit
    settle: Commit
    user_id: str
    agent_id: str
    session_key: str
    run_id: int | None = None
    attempt: int = 0
    owner: str | None = None


async def call_metered(
    payer: BillingScope, call: ModelCall, on_event: Callable[[ModelEvent], None]
) -> Done:
    """The whole answer; pieces are heard as they come.

    What was used is settled whatever happens: of a call that was cut, as far as it is known.
    """
    plan = _plan(payer, call)
    paying = _Reservation(payer, plan)
    await paying.begin()
    request = replace(call.request, max_tokens=plan.max_output_tokens, on_retry=paying.again)
    stream: ModelStream | None = None
    try:
        async with call.chosen.model.stream(request) as stream:
            done = _fill_usage(await _last(stream, on_event, plan.provider), plan)
            await paying.end(ModelUsage(done.provider, done.model, done.usage))
    except BaseException as error:
        billed = not isinstance(error, ProviderError) or error.may_be_billed
        await paying.cut(Usage() if stream is None else stream.usage, may_be_billed=billed)
        raise
    return done


async def _last(stream: ModelStream, hear: Callable[[ModelEvent], None], provider: str) -> Done:
    async for event in stream:
        if type(event) is Done:
            return event
        hear(event)
    raise ProviderError("the answer ended without a finish.", fault=Fault.CUT, provider=provider)


def _plan(payer: BillingScope, call: ModelCall) -> CallPlan:
    chosen, most = call.chosen, call.request.max_tokens
    return CallPlan(
        user_id=payer.user_id,
        agent_id=payer.agent_id,
        session_key=payer.session_key,
        run_id=payer.run_id,
        attempt=payer.attempt,
        step_key=call.step_key,
        provider=chosen.model.provider,
        model=chosen.model.name,
        input_tokens=call.input_tokens,
        max_output_tokens=max(1, chosen.max_tokens if most is None else most),
        at=time(),
        fallbacks=chosen.fallbacks,
        owner=payer.owner,
    )


def _fill_usage(done: Done, plan: CallPlan) -> Done:
    """The answer, with what it was made of: of that a provider without accounts says nothing."""
    usage = done.usage
    if not usage.estimated or usage.input_tokens:
        return done
    return replace(done, usage=replace(usage, input_tokens=plan.input_tokens))


class _Reservation:
    """What is put aside for a call: for one attempt at a time, since each may be billed."""

    def __init__(self, payer: BillingScope, plan: CallPlan) -> None:
        self._payer = payer
        self._plan = plan
        self._hold: Reservation | None = None
        self._asked = (plan.provider, plan.model)  # who answers, as far as we know

    async def begin(self) -> None:
        payer = self._payer
        try:
            self._hold = await payer.reserve(payer.meter.reserve(self._plan))
        except BudgetExceeded as refused:
            what = f"{payer.agent_id}: {refused.message}"
            payer.audit.note(AuditEntry(kind="budget", what=what, user_id=payer.user_id))
            raise

    async def end(self, *used: ModelUsage) -> None:
        """Settle what is put aside, once."""
        if self._hold is not None:
            hold, self._hold = self._hold, None
            await self._payer.settle(self._payer.meter.settle(hold, self._plan, used))

    async def again(self, attempt: FailedAttempt, model: Model) -> None:
        """An attempt came to nothing, and another is about to be made: that is a call too."""
        self._asked = (attempt.provider, attempt.model)
        await self.cut(attempt.usage, may_be_billed=attempt.may_be_billed)
        self._asked = (model.provider, model.name)
        await self.begin()

    async def cut(self, usage: Usage, *, may_be_billed: bool) -> None:
        """Settle what a call used that came to nothing."""
        if not has_no_usage(usage):
            await self.end(ModelUsage(*self._asked, usage))
        elif may_be_billed:
            await self.end(ModelUsage(*self._asked, Usage(estimated=True)))
        else:
            await self.end()


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
