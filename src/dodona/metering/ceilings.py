"""Ceilings: the most that a session, an agent, a user, a day or a month may spend."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from decimal import Decimal

from dodona.core.domain.budgets import (
    ALL_TIME,
    MAX_CEILING_TOKENS,
    MAX_CEILING_USD,
    NANOS_PER_USD,
    BudgetLimit,
    BudgetLine,
    BudgetUnit,
    CallPlan,
    day_and_month,
    token_limits,
)
from dodona.core.errors import ConfigError


def _check_ceiling(unit: str, value: int | Decimal | None, maximum: int) -> None:
    if value is None or (Decimal(value).is_finite() and 0 <= value <= maximum):
        return
    raise ConfigError(
        f"a ceiling in {unit} must be from 0 to {maximum:,} (got {value}).",
        hint="Omit it for no ceiling.",
    )


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The most that may be spent; None is unlimited, 0 allows nothing."""

    tokens: int | None = None
    usd: Decimal | None = None

    def __post_init__(self) -> None:
        _check_ceiling("tokens", self.tokens, MAX_CEILING_TOKENS)
        _check_ceiling("usd", self.usd, MAX_CEILING_USD)

    @property
    def nanos(self) -> int | None:
        return None if self.usd is None else int(self.usd * NANOS_PER_USD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """Daily and monthly ceilings cover all users, in UTC; the others never reset."""

    session: Ceiling = Ceiling()
    agent: Ceiling = Ceiling()
    user: Ceiling = Ceiling()
    daily: Ceiling = Ceiling()
    monthly: Ceiling = Ceiling()
    # The name, unit and amount of each ceiling that is set: every call needs them.
    _amounts: tuple[tuple[str, BudgetUnit, int], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        names = (each.name for each in fields(self) if each.init)
        amounts = tuple(
            (name, unit, amount)
            for name in names
            for unit, amount in _amounts(getattr(self, name))
            if amount is not None
        )
        object.__setattr__(self, "_amounts", amounts)

    def needs_price(self, plan: CallPlan) -> bool:
        """Whether a ceiling of the call is in dollars, so that its price must be known."""
        token = plan.scope.token
        has_usd = any(unit is BudgetUnit.USD for _, unit, _ in self._amounts)
        return has_usd or (token is not None and token.limits.budget_nanos is not None)

    def budget_lines(self, plan: CallPlan, *, tokens: int, nanos: int) -> list[BudgetLine]:
        """Return the budgets that a call counts towards, each with the most that it may use."""
        amounts = {BudgetUnit.TOKENS: tokens, BudgetUnit.USD: nanos}
        payer = plan.scope
        names = {"session": payer.session_name, "agent": payer.agent_id, "user": payer.user_id}
        names["token"] = None if payer.token is None else str(payer.token.id)
        lines: list[BudgetLine] = []
        for limit in self._limits_of(plan):
            name = names.get(limit.kind, "")
            if name is not None:
                scope = f"{limit.kind}:{name}" if name else limit.kind
                amount = amounts[limit.unit]
                lines.append(BudgetLine(scope, limit.period, limit.unit, amount, limit.ceiling))
        return lines

    def _limits_of(self, plan: CallPlan) -> tuple[BudgetLimit, ...]:
        """Return the configured ceilings, and those of the token that pays for a call."""
        token = plan.scope.token
        return (*self.limits(plan.at), *(() if token is None else token_limits(token, plan.at)))

    def limits(self, at: float) -> tuple[BudgetLimit, ...]:
        """Return all configured ceilings, with the periods at a time."""
        day, month = day_and_month(at)
        periods = {"daily": day, "monthly": month}
        return tuple(
            BudgetLimit(name, periods.get(name, ALL_TIME), unit, amount)
            for name, unit, amount in self._amounts
        )


def _amounts(ceiling: Ceiling) -> tuple[tuple[BudgetUnit, int | None], ...]:
    return (BudgetUnit.TOKENS, ceiling.tokens), (BudgetUnit.USD, ceiling.nanos)
