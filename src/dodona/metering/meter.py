"""The meter, which every call of a model passes: reserved before, settled and recorded after.

    hold = await journal.commit(meter.reserve(plan))     BudgetExceeded: no call is made
    …                                                    the call
    await journal.commit(meter.settle(hold, plan, [Used(done.provider, done.model, done.usage)]))

Both give operations for a transaction of the caller's, so that they cost no commit of their own.
Prices are looked up before that, for a transaction must not wait for anything.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import ROUND_CEILING, Decimal
from typing import Any, Protocol

from dodona.core.domain.budgets import (
    NANOS_PER_USD,
    BudgetLimit,
    BudgetLine,
    CallPlan,
    ModelUsage,
    Operation,
    Reservation,
    TokenRecord,
    has_no_usage,
)
from dodona.core.errors import BudgetExceeded
from dodona.core.ports.model import Usage
from dodona.metering.ceilings import Ceilings


class PriceList(Protocol):
    """What calls cost in US dollars; None when nobody knows."""

    def cost(self, usage: Usage, *, provider: str, model: str, at: datetime) -> Decimal | None: ...

    def max_cost(
        self, *, provider: str, model: str, input_tokens: int, max_output_tokens: int, at: datetime
    ) -> Decimal | None:
        """The most that a call can cost."""
        ...


class Ledger(Protocol):
    """Where budgets and records are kept: the functions of the store's package, as they are."""

    def reserve(
        self,
        tx: Any,
        lines: Sequence[BudgetLine],
        *,
        run_id: int | None,
        step_key: str,
        attempt: int,
        owner: str | None = None,
        crash_record: TokenRecord | None = None,
    ) -> Reservation: ...

    def settle(
        self,
        tx: Any,
        reservation: Reservation,
        *,
        tokens: int,
        nanos: int | None,
        estimated: bool = False,
    ) -> bool: ...

    def record(self, tx: Any, entry: TokenRecord, usage: Usage) -> None: ...


@dataclass(frozen=True, slots=True)
class _Pricing:
    """What holds at a moment: both parts of it change together."""

    ceilings: Ceilings
    prices: PriceList


class Meter:
    """Keeps calls under the ceilings, and a record of each."""

    def __init__(self, ceilings: Ceilings, *, prices: PriceList, ledger: Ledger) -> None:
        self._pricing = _Pricing(ceilings, prices)
        self._ledger = ledger

    @property
    def ceilings(self) -> Ceilings:
        return self._pricing.ceilings

    def limits(self, at: float) -> tuple[BudgetLimit, ...]:
        return self._pricing.ceilings.limits(at)

    def update(self, ceilings: Ceilings, prices: PriceList) -> None:
        """Hold the next calls to these; those on their way keep what was put aside for them."""
        self._pricing = _Pricing(ceilings, prices)

    def reserve(self, plan: CallPlan) -> Operation[Reservation]:
        """Put aside the most that a call can use, or raise BudgetExceeded."""
        terms = self._pricing
        tokens = max(0, plan.input_tokens) + max(0, plan.max_output_tokens)
        most = _max_cost(terms, plan)
        nanos = _nanos(most) if terms.ceilings.has_usd and most is not None else 0
        lines = terms.ceilings.budget_lines(plan, tokens=tokens, nanos=nanos)
        if_cut = _build_record(ModelUsage(plan.provider, plan.model, _max_usage(plan)), most, plan)
        return lambda tx: self._ledger.reserve(
            tx,
            lines,
            run_id=plan.run_id,
            step_key=plan.step_key,
            attempt=plan.attempt,
            owner=plan.owner,
            crash_record=if_cut,
        )

    def settle(
        self, reservation: Reservation, plan: CallPlan, usages: Sequence[ModelUsage]
    ) -> Operation[bool]:
        """Count what was used instead of what was put aside, and record it.

        A call that came to nothing used nothing: `used` is empty then. What was estimated counts
        with no more than was put aside; without any account the call counts with all of it. False
        when the hold was settled before: then nothing is counted or recorded again.
        """
        prices = self._pricing.prices
        known = [_fill_usage(each, plan) for each in usages]
        costs = [_cost(prices, each, plan) for each in known]
        records = [_build_record(*each, plan) for each in zip(known, costs, strict=True)]
        tokens = sum(entry.input_tokens + entry.output_tokens for entry in records)
        priced = [cost for cost in costs if cost is not None]
        nanos = _nanos(sum(priced, Decimal(0))) if len(priced) == len(costs) else None
        estimated = any(each.usage.estimated for each in known)

        def settle(tx: Any) -> bool:
            if not self._ledger.settle(
                tx, reservation, tokens=tokens, nanos=nanos, estimated=estimated
            ):
                return False
            for entry, each in zip(records, known, strict=True):
                self._ledger.record(tx, entry, each.usage)
            return True

        return settle


def _max_cost(pricing: _Pricing, plan: CallPlan) -> Decimal | None:
    """What the call costs at most, whoever answers it; None when nobody knows."""
    most = Decimal(0)
    for provider, model in plan.models:
        cost = pricing.prices.max_cost(
            provider=provider,
            model=model,
            input_tokens=plan.input_tokens,
            max_output_tokens=plan.max_output_tokens,
            at=_time(plan),
        )
        if cost is None and pricing.ceilings.has_usd:
            raise _unpriced_error(provider, model)
        if cost is None:
            return None
        most = max(most, cost)
    return most


def _cost(prices: PriceList, used: ModelUsage, plan: CallPlan) -> Decimal | None:
    """By the name that was asked for: prices are set for those, and wires answer with others.

    Of several names that it may have been, the dearest counts.
    """
    asked = [model for provider, model in plan.models if provider == used.provider]
    names = [used.model] if used.model in asked or not asked else asked
    at = _time(plan)
    costs = [prices.cost(used.usage, provider=used.provider, model=name, at=at) for name in names]
    known = [cost for cost in costs if cost is not None]
    return max(known) if len(known) == len(costs) else None


def _fill_usage(used: ModelUsage, plan: CallPlan) -> ModelUsage:
    """As the provider says; what it does not say is taken from the plan."""
    usage = used.usage
    if usage.estimated:
        known = replace(
            usage,
            input_tokens=usage.input_tokens or max(0, plan.input_tokens),
            output_tokens=min(usage.output_tokens, max(0, plan.max_output_tokens)),
        )
        return replace(used, usage=known)
    return replace(used, usage=_max_usage(plan)) if has_no_usage(usage) else used


def _max_usage(plan: CallPlan) -> Usage:
    """All that the call could use."""
    most = max(0, plan.input_tokens), max(0, plan.max_output_tokens)
    return Usage(*most, estimated=True)


def _build_record(used: ModelUsage, cost: Decimal | None, plan: CallPlan) -> TokenRecord:
    usage = used.usage
    return TokenRecord(
        user_id=plan.user_id,
        agent_id=plan.agent_id,
        provider=used.provider,
        model=used.model,
        input_tokens=max(0, usage.input_tokens),
        output_tokens=max(0, usage.output_tokens),
        cost_estimate_usd=None if cost is None else float(cost),
        session_key=plan.session_key,
        run_id=plan.run_id,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        estimated=usage.estimated,
        timestamp=plan.at,
    )


def _time(plan: CallPlan) -> datetime:
    return datetime.fromtimestamp(plan.at, UTC)


def _nanos(usd: Decimal) -> int:
    """Rounded up: a budget never shows less than was spent."""
    return int((usd * NANOS_PER_USD).to_integral_value(ROUND_CEILING))


def _unpriced_error(provider: str, model: str) -> BudgetExceeded:
    name = f"{provider}/{model}"
    return BudgetExceeded(
        f"a budget in US dollars allows no call of {name}: its price is unknown.",
        hint=f"Set its price under [prices.{json.dumps(name)}], 0 if nobody bills it.",
    )
