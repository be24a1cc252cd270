"""One call of a model: reserved, streamed, settled. There is no other way to a model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from time import time
from typing import Any, TypeAlias

from dodona.agent.run_context.context import PartialAnswer, RunContext
from dodona.agent.run_context.deps import RunDeps
from dodona.core.domain.audit import AuditEntry
from dodona.core.domain.budgets import (
    CallPlan,
    Meter,
    ModelUsage,
    Operation,
    Reservation,
    has_no_usage,
)
from dodona.core.errors import BudgetExceeded, ProviderError, ProviderErrorKind
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
from dodona.store.accounts.audit import AuditLog

Commit: TypeAlias = Callable[[Operation[Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """A call that is about to be made; `step_key` says in the books what it was for."""

    chosen_model: ChosenModel
    request: ModelRequest
    step_key: str
    input_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BillingScope:
    """Who pays for calls. What is settled may be written later than what is reserved.

    Within a run it is the run's; outside it has an `owner`, the process.
    """

    meter: Meter
    audit: AuditLog
    reserve: Commit
    settle: Commit
    user_id: str
    agent_id: str
    session_key: str
    run_id: int | None = None
    attempt: int = 0
    owner: str | None = None


async def call_metered(
    scope: BillingScope, call: ModelCall, on_event: Callable[[ModelEvent], None]
) -> Done:
    """The whole answer; pieces are heard as they come.

    What was used is settled whatever happens: of a call that was cut, as far as it is known.
    """
    plan = _build_plan(scope, call)
    paying = _CallReservation(scope, plan)
    await paying.reserve()
    request = replace(call.request, max_tokens=plan.max_output_tokens, on_retry=paying.retry)
    stream: ModelStream | None = None
    try:
        async with call.chosen_model.model.stream(request) as stream:
            done = _fill_usage(await _consume_until_done(stream, on_event, plan.provider), plan)
            await paying.settle(ModelUsage(done.provider, done.model, done.usage))
    except BaseException as error:
        billed = not isinstance(error, ProviderError) or error.may_be_billed
        await paying.settle_interrupted(
            Usage() if stream is None else stream.usage, may_be_billed=billed
        )
        raise
    return done


async def _consume_until_done(
    stream: ModelStream, on_event: Callable[[ModelEvent], None], provider: str
) -> Done:
    async for event in stream:
        if type(event) is Done:
            return event
        on_event(event)
    raise ProviderError(
        "the answer ended without a finish.", kind=ProviderErrorKind.INTERRUPTED, provider=provider
    )


def _build_plan(scope: BillingScope, call: ModelCall) -> CallPlan:
    chosen, most = call.chosen_model, call.request.max_tokens
    return CallPlan(
        user_id=scope.user_id,
        agent_id=scope.agent_id,
        session_key=scope.session_key,
        run_id=scope.run_id,
        attempt=scope.attempt,
        step_key=call.step_key,
        provider=chosen.model.provider,
        model=chosen.model.name,
        input_tokens=call.input_tokens,
        max_output_tokens=max(1, chosen.max_tokens if most is None else most),
        at=time(),
        fallbacks=chosen.fallbacks,
        owner=scope.owner,
    )


def _fill_usage(done: Done, plan: CallPlan) -> Done:
    """The answer, with what it was made of: of that a provider without accounts says nothing."""
    usage = done.usage
    if not usage.estimated or usage.input_tokens:
        return done
    return replace(done, usage=replace(usage, input_tokens=plan.input_tokens))


class _CallReservation:
    """What is put aside for a call: for one attempt at a time, since each may be billed."""

    def __init__(self, scope: BillingScope, plan: CallPlan) -> None:
        self._scope = scope
        self._plan = plan
        self._reservation: Reservation | None = None
        self._answering_model = (plan.provider, plan.model)  # who answers, as far as we know

    async def reserve(self) -> None:
        payer = self._scope
        try:
            self._reservation = await payer.reserve(payer.meter.reserve(self._plan))
        except BudgetExceeded as refused:
            what = f"{payer.agent_id}: {refused.message}"
            payer.audit.record(AuditEntry(kind="budget", what=what, user_id=payer.user_id))
            raise

    async def settle(self, *used: ModelUsage) -> None:
        """Settle what is put aside, once."""
        if self._reservation is not None:
            hold, self._reservation = self._reservation, None
            await self._scope.settle(self._scope.meter.settle(hold, self._plan, used))

    async def retry(self, attempt: FailedAttempt, model: Model) -> None:
        """An attempt came to nothing, and another is about to be made: that is a call too."""
        self._answering_model = (attempt.provider, attempt.model)
        await self.settle_interrupted(attempt.usage, may_be_billed=attempt.may_be_billed)
        self._answering_model = (model.provider, model.name)
        await self.reserve()

    async def settle_interrupted(self, usage: Usage, *, may_be_billed: bool) -> None:
        """Settle what a call used that came to nothing."""
        if not has_no_usage(usage):
            await self.settle(ModelUsage(*self._answering_model, usage))
        elif may_be_billed:
            await self.settle(ModelUsage(*self._answering_model, Usage(estimated=True)))
        else:
            await self.settle()


async def call_in_run(
    host: RunContext,
    call: ModelCall,
    on_event: Callable[[ModelEvent], None],
    partial_answer: PartialAnswer,
) -> Done:
    """The whole answer; pieces are shown as they come."""

    def hear(event: ModelEvent) -> None:
        partial_answer.add(event)
        on_event(event)

    return await call_metered(_billing_scope(host), call, hear)


def _billing_scope(host: RunContext) -> BillingScope:
    async def settle(operation: Operation[Any]) -> None:
        host.journal.add_to_next_commit(operation)

    claim = host.claim
    return BillingScope(
        meter=host.deps.meter,
        audit=host.deps.storage.audit,
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


def _ignore_event(event: ModelEvent) -> None:
    del event


async def call_outside_run(
    deps: RunDeps, call: BackgroundCall, on_event: Callable[[ModelEvent], None] = _ignore_event
) -> Done:
    """The whole answer; pieces are heard as they come.

    What was used is settled whatever happens, also when it is cancelled. If the process dies,
    whoever opens the store next settles it.
    """
    storage = deps.storage
    payer = BillingScope(
        meter=deps.meter,
        audit=storage.audit,
        reserve=storage.commit,
        settle=storage.commit,
        user_id=call.user_id,
        agent_id=call.agent_id,
        session_key=call.session_key,
        owner=storage.owner,
    )
    return await call_metered(payer, call, on_event)
