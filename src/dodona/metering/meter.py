"""The meter of model calls: reserves before a call, settles and records after it.

    reservation = await meter.wait_and_reserve(plan, commit)    BudgetExceeded: no call is made
    …                                                           the call
    usages = [ModelUsage(done.provider, done.model, done.usage)]
    await journal.commit(meter.settle(reservation, plan, usages))

Both run in a transaction of the caller, so that they need no extra commit.
Prices are looked up beforehand, because a transaction must not wait.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from typing import Any, Final

from dodona.core.domain.budgets import (
    NANOS_PER_USD,
    BudgetLimit,
    CallPlan,
    ModelUsage,
    Reservation,
    TokenRecord,
    has_no_usage,
)
from dodona.core.errors import BudgetExceeded
from dodona.core.ports.model import Usage
from dodona.metering.ceilings import Ceilings
from dodona.metering.prices import Prices
from dodona.metering.waiting import ReservationQueue
from dodona.store.billing import budgets, token_records
from dodona.store.db.database import StoreOperation, Transaction

_USES_NO_TOKENS: Final = frozenset({"extractive"})


@dataclass(frozen=True, slots=True)
class _Terms:
    """The configured values, which change together."""

    ceilings: Ceilings
    prices: Prices
    wait_seconds: float


class Meter:
    """Enforces the ceilings, and records every call.

    `wait_seconds` is how long a call waits for budget that other calls have reserved.
    """

    def __init__(self, ceilings: Ceilings, *, prices: Prices, wait_seconds: float = 0.0) -> None:
        self._terms = _Terms(ceilings, prices, wait_seconds)
        self._queue = ReservationQueue()

    @property
    def ceilings(self) -> Ceilings:
        return self._terms.ceilings

    def limits(self, at: float) -> tuple[BudgetLimit, ...]:
        return self._terms.ceilings.limits(at)

    def update(self, ceilings: Ceilings, *, prices: Prices, wait_seconds: float) -> None:
        """Apply these to the next calls; calls in progress keep their reservations."""
        self._terms = _Terms(ceilings, prices, wait_seconds)

    async def wait_and_reserve(
        self,
        plan: CallPlan,
        commit: Callable[[StoreOperation[Any]], Awaitable[Any]],
    ) -> Reservation:
        """Reserve the most that a call can use; wait while only reservations block it."""
        terms = self._terms

        async def attempt() -> Reservation:
            try:
                return await commit(self.reserve(plan))
            except BudgetExceeded as error:
                if error.retry_after is not None:
                    # The failed transaction may have included a settlement of the same run.
                    await commit(_no_operation)
                raise

        lines = terms.ceilings.budget_lines(plan, tokens=0, nanos=0)
        scopes = [line.scope for line in lines]
        return await self._queue.reserve(attempt, scopes=scopes, seconds=terms.wait_seconds)

    def reserve(self, plan: CallPlan) -> StoreOperation[Reservation]:
        """Reserve the most that a call can use, or raise BudgetExceeded."""
        pricing = self._terms
        tokens = max(0, plan.input_tokens) + max(0, plan.max_output_tokens)
        if all(provider in _USES_NO_TOKENS for provider, _ in plan.models):
            tokens = 0
        needs_price = pricing.ceilings.needs_price(plan)
        max_cost = _max_cost(pricing.prices, plan, is_required=needs_price)
        nanos = _nanos(max_cost) if needs_price and max_cost is not None else 0
        lines = pricing.ceilings.budget_lines(plan, tokens=tokens, nanos=nanos)
        usage = ModelUsage(plan.provider, plan.model, _max_usage(plan))
        crash_record = _build_record(usage, max_cost, plan)
        return lambda tx: budgets.reserve(
            tx,
            lines,
            run_id=plan.scope.run_id,
            step_key=plan.step_key,
            attempt=plan.scope.attempt,
            owner=plan.scope.owner,
            crash_record=crash_record,
        )

    def settle(
        self, reservation: Reservation, plan: CallPlan, usages: Sequence[ModelUsage]
    ) -> StoreOperation[bool]:
        """Replace the reservation with the actual usage, and record it.

        `usages` is empty if the call failed and used nothing. Estimated usage never exceeds the
        reservation; without any report, the call counts as the whole reservation. Return False if
        the reservation was settled before: then nothing is counted or recorded again.
        """
        prices = self._terms.prices
        filled = [_fill_usage(each, plan) for each in usages]
        costs = [_cost(prices, each, plan) for each in filled]
        records = [_build_record(*each, plan) for each in zip(filled, costs, strict=True)]
        tokens = sum(entry.input_tokens + entry.output_tokens for entry in records)
        priced = [cost for cost in costs if cost is not None]
        nanos = _nanos(sum(priced, Decimal(0))) if len(priced) == len(costs) else None
        estimated = any(each.usage.estimated for each in filled)

        def settle(tx: Transaction) -> bool:
            if not budgets.settle(tx, reservation, tokens=tokens, nanos=nanos, estimated=estimated):
                return False
            for entry, each in zip(records, filled, strict=True):
                token_records.record(tx, entry, each.usage)
            # Before the commit: a call that wakes too early waits for our locks on the budgets.
            self._queue.notify()
            return True

        return settle


def _no_operation(_: Transaction) -> None:
    """Commit only the pending operations."""


def _max_cost(prices: Prices, plan: CallPlan, *, is_required: bool) -> Decimal | None:
    """Return the highest cost of the call with any of its models; None if a price is unknown.

    Raises BudgetExceeded instead of returning None if a price is required.
    """
    highest = Decimal(0)
    for provider, model in plan.models:
        cost = prices.max_cost(
            provider=provider,
            model=model,
            input_tokens=plan.input_tokens,
            max_output_tokens=plan.max_output_tokens,
            at=_time(plan),
        )
        if cost is None and is_required:
            raise _unpriced_error(provider, model)
        if cost is None:
            return None
        highest = max(highest, cost)
    return highest


def _cost(prices: Prices, used: ModelUsage, plan: CallPlan) -> Decimal | None:
    """Price a call by the model name in the plan, because providers report other names.

    If it may have been one of several models, the most expensive one counts.
    """
    planned = [model for provider, model in plan.models if provider == used.provider]
    names = [used.model] if used.model in planned or not planned else planned
    at = _time(plan)
    costs = [prices.cost(used.usage, provider=used.provider, model=name, at=at) for name in names]
    priced = [cost for cost in costs if cost is not None]
    return max(priced) if len(priced) == len(costs) else None


def count_tokens(plan: CallPlan, usages: Sequence[ModelUsage]) -> tuple[int, int]:
    """Return the input and output tokens that a settlement with these usages records."""
    filled = [_fill_usage(each, plan).usage for each in usages]
    return (
        sum(max(0, usage.input_tokens) for usage in filled),
        sum(max(0, usage.output_tokens) for usage in filled),
    )


def _fill_usage(used: ModelUsage, plan: CallPlan) -> ModelUsage:
    """Return the usage as reported; missing numbers are taken from the plan."""
    usage = used.usage
    if usage.estimated:
        filled = replace(
            usage,
            input_tokens=usage.input_tokens or max(0, plan.input_tokens),
            output_tokens=min(usage.output_tokens, max(0, plan.max_output_tokens)),
        )
        return replace(used, usage=filled)
    return replace(used, usage=_max_usage(plan)) if has_no_usage(usage) else used


def _max_usage(plan: CallPlan) -> Usage:
    """Return the most that the call can use."""
    tokens = max(0, plan.input_tokens), max(0, plan.max_output_tokens)
    return Usage(*tokens, estimated=True)


def _build_record(used: ModelUsage, cost: Decimal | None, plan: CallPlan) -> TokenRecord:
    usage = used.usage
    return TokenRecord(
        user_id=plan.scope.user_id,
        agent_id=plan.scope.agent_id,
        provider=used.provider,
        model=used.model,
        input_tokens=max(0, usage.input_tokens),
        output_tokens=max(0, usage.output_tokens),
        cost_estimate_usd=None if cost is None else float(cost),
        session_key=plan.scope.session_key,
        run_id=plan.scope.run_id,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        estimated=usage.estimated,
        timestamp=plan.at,
    )


def _time(plan: CallPlan) -> datetime:
    return datetime.fromtimestamp(plan.at, UTC)


def _nanos(usd: Decimal) -> int:
    """Round up: a budget never shows less than was spent."""
    return int((usd * NANOS_PER_USD).to_integral_value(ROUND_CEILING))


def _unpriced_error(provider: str, model: str) -> BudgetExceeded:
    name = f"{provider}/{model}"
    return BudgetExceeded(
        f"a budget in US dollars does not allow {name}: its price is unknown.",
        hint=f"Set its price under [prices.{json.dumps(name)}], or 0 if it is free.",
    )
