"""Model calls: reserve budget, stream the response, settle the usage.

Every model call of the agent layer goes through this module.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from time import time
from typing import Any, TypeAlias

from dodona.agent.run_context.context import PartialAnswer, RunContext, RunUsage
from dodona.agent.run_context.deps import RunDeps
from dodona.core.domain.audit import AuditEntry
from dodona.core.domain.budgets import (
    BillingScope,
    CallPlan,
    ModelUsage,
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
from dodona.metering import count_tokens
from dodona.store.db.database import StoreOperation
from dodona.trees import Step

Commit: TypeAlias = Callable[[StoreOperation[Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCall:
    """A model call to make. `step_key` states its purpose in the usage records."""

    chosen_model: ChosenModel
    request: ModelRequest
    step_key: str
    estimated_input_tokens: int


def _ignore_event(event: ModelEvent) -> None:
    del event


async def call_in_run(
    context: RunContext,
    call: ModelCall,
    on_event: Callable[[ModelEvent], None],
    partial_answer: PartialAnswer,
    *,
    step: Step,
) -> Done:
    """Make a call that is billed to the run; collect its text in `partial_answer` meanwhile.

    While it waits for budget, the timers of the step's run are paused.
    """

    def handle(event: ModelEvent) -> None:
        partial_answer.add(event)
        on_event(event)

    async def settle(operation: StoreOperation[Any]) -> None:
        context.journal.add_to_next_commit(operation)

    plan = _build_plan(context.billing, call)
    reservation = _CallReservation(
        context.deps, plan, reserve=context.journal.commit, settle=settle, usage=context.usage
    )
    with step.pause_timers():
        await reservation.reserve()
    return await _call_metered(call, reservation, handle)


async def call_outside_run(
    deps: RunDeps,
    scope: BillingScope,
    call: ModelCall,
    on_event: Callable[[ModelEvent], None] = _ignore_event,
) -> Done:
    """Make a call that belongs to no run; pass each event to `on_event` as it arrives.

    Usage is always settled, also after a cancellation. If the process dies, the next process that
    opens the store settles it.
    """
    scope = replace(scope, run_id=None, attempt=0, owner=deps.storage.owner)
    commit = deps.storage.commit
    reservation = _CallReservation(deps, _build_plan(scope, call), reserve=commit, settle=commit)
    await reservation.reserve()
    return await _call_metered(call, reservation, on_event)


async def _call_metered(
    call: ModelCall, reservation: _CallReservation, on_event: Callable[[ModelEvent], None]
) -> Done:
    """Return the complete response of a reserved call; pass each event to `on_event`.

    Usage is always settled: for an interrupted call, as far as it is known.
    """
    plan = reservation.plan
    request = replace(call.request, max_tokens=plan.max_output_tokens, on_retry=reservation.retry)
    stream: ModelStream | None = None
    try:
        async with call.chosen_model.model.stream(request) as stream:
            done = _fill_input_tokens(
                await _consume_until_done(stream, on_event, plan.provider), plan
            )
            await reservation.settle(ModelUsage(done.provider, done.model, done.usage))
    except BaseException as error:
        may_be_billed = not isinstance(error, ProviderError) or error.may_be_billed
        await reservation.settle_interrupted(
            Usage() if stream is None else stream.usage, may_be_billed=may_be_billed
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
        "the response ended without a final event.",
        kind=ProviderErrorKind.INTERRUPTED,
        provider=provider,
    )


def _build_plan(scope: BillingScope, call: ModelCall) -> CallPlan:
    """Return the plan of a call; raise AccessDenied if the token does not allow all its models."""
    chosen, max_tokens = call.chosen_model, call.request.max_tokens
    plan = CallPlan(
        scope=scope,
        step_key=call.step_key,
        provider=chosen.model.provider,
        model=chosen.model.name,
        input_tokens=call.estimated_input_tokens,
        max_output_tokens=max(1, chosen.max_tokens if max_tokens is None else max_tokens),
        at=time(),
        fallbacks=chosen.fallbacks,
    )
    if scope.token is not None:
        for provider, model in plan.models:
            scope.token.check_model(provider, model)
    return plan


def _fill_input_tokens(done: Done, plan: CallPlan) -> Done:
    """Add the planned input tokens if the provider reports no usage."""
    usage = done.usage
    if not usage.estimated or usage.input_tokens:
        return done
    return replace(done, usage=replace(usage, input_tokens=plan.input_tokens))


class _CallReservation:
    """The reservation of a call: one attempt at a time, since each attempt may be billed."""

    def __init__(
        self,
        deps: RunDeps,
        plan: CallPlan,
        *,
        reserve: Commit,
        settle: Commit,
        usage: RunUsage | None = None,
    ) -> None:
        self.plan = plan
        self._deps = deps
        self._commit_reservation = reserve
        self._commit_settlement = settle  # may be later than the call ends
        self._reservation: Reservation | None = None
        self._attempted_model = (plan.provider, plan.model)  # changes with a fallback
        self._usage = usage

    async def reserve(self) -> None:
        """Reserve budget; wait if other calls have reserved it."""
        meter, plan = self._deps.meter, self.plan
        await self._reserve(meter.wait_and_reserve(plan, self._commit_reservation))

    async def _reserve(self, reservation: Awaitable[Reservation]) -> None:
        deps, scope = self._deps, self.plan.scope
        try:
            self._reservation = await reservation
        except BudgetExceeded as error:
            what = f"{scope.agent_id}: {error.message}"
            token_id = None if scope.token is None else scope.token.id
            deps.storage.audit.record(
                AuditEntry(kind="budget", what=what, user_id=scope.user_id, token_id=token_id)
            )
            raise

    async def settle(self, *used: ModelUsage) -> None:
        """Settle the current reservation. A second call does nothing."""
        if self._reservation is not None:
            reservation, self._reservation = self._reservation, None
            settlement = self._deps.meter.settle(reservation, self.plan, used)
            if self._usage is not None:
                self._usage.add(*count_tokens(self.plan, used))
            await self._commit_settlement(settlement)

    async def retry(self, attempt: FailedAttempt, model: Model) -> None:
        """Settle a failed attempt and reserve budget for the next, which is billed separately.

        It does not wait for other calls: that would count as time of the model.
        """
        self._attempted_model = (attempt.provider, attempt.model)
        await self.settle_interrupted(attempt.usage, may_be_billed=attempt.may_be_billed)
        self._attempted_model = (model.provider, model.name)
        self.plan = replace(self.plan, provider=model.provider, model=model.name, fallbacks=())
        await self._reserve(self._commit_reservation(self._deps.meter.reserve(self.plan)))

    async def settle_interrupted(self, usage: Usage, *, may_be_billed: bool) -> None:
        """Settle a call that failed or was cancelled."""
        if not has_no_usage(usage):
            await self.settle(ModelUsage(*self._attempted_model, usage))
        elif may_be_billed:
            await self.settle(ModelUsage(*self._attempted_model, Usage(estimated=True)))
        else:
            await self.settle()
