"""Ceilings say under which budgets a call falls."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from dodona.core.domain.budgets import NANOS_PER_USD, BillingScope, BudgetLine, BudgetUnit, CallPlan
from dodona.core.errors import ConfigError
from dodona.metering import Ceiling, Ceilings


def plan(*, at: datetime, session_key: str | None = "oracle:web:a:main") -> CallPlan:
    return CallPlan(
        scope=BillingScope(
            user_id="ada", agent_id="oracle", session_key=session_key, run_id=1, attempt=1
        ),
        step_key="loop[1]/ask",
        provider="openai",
        model="oak",
        input_tokens=10,
        max_output_tokens=5,
        at=at.timestamp(),
    )


LAST_SECOND = datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC)
NEXT_DAY = datetime(2026, 12, 1, tzinfo=UTC)


def test_every_scope_has_its_name_and_period() -> None:
    """Session, agent and user count for ever; the day and the month are in the key."""
    both = Ceiling(tokens=100, usd=Decimal("0.5"))
    ceilings = Ceilings(session=both, agent=both, user=both, daily=both, monthly=both)
    scopes = [
        ("session:ada:oracle:web:a:main", "-"),
        ("agent:oracle", "-"),
        ("user:ada", "-"),
        ("daily", "2026-11-30"),
        ("monthly", "2026-11"),
    ]
    assert ceilings.budget_lines(plan(at=LAST_SECOND), tokens=15, nanos=7) == [
        line
        for scope in scopes
        for line in (
            BudgetLine(*scope, BudgetUnit.TOKENS, 15, 100),
            BudgetLine(*scope, BudgetUnit.USD, 7, NANOS_PER_USD // 2),
        )
    ]


def test_days_and_months_are_those_of_utc() -> None:
    """One second later it is another day and another month."""
    one = Ceiling(tokens=1)
    lines = Ceilings(daily=one, monthly=one).budget_lines(plan(at=NEXT_DAY), tokens=1, nanos=0)
    assert [line.period for line in lines] == ["2026-12-01", "2026-12"]


def test_no_ceiling_is_no_line_and_zero_is_one() -> None:
    """None leaves a budget out; 0 allows nothing."""
    assert Ceilings().budget_lines(plan(at=NEXT_DAY), tokens=1, nanos=1) == []
    ceilings = Ceilings(user=Ceiling(tokens=0), agent=Ceiling(usd=Decimal(0)))
    lines = ceilings.budget_lines(plan(at=NEXT_DAY), tokens=1, nanos=2)
    assert lines == [
        BudgetLine("agent:oracle", "-", BudgetUnit.USD, 2, 0),
        BudgetLine("user:ada", "-", BudgetUnit.TOKENS, 1, 0),
    ]


def test_a_run_without_a_session_has_no_budget_of_one() -> None:
    ceilings = Ceilings(session=Ceiling(tokens=1), daily=Ceiling(tokens=1))
    lines = ceilings.budget_lines(plan(at=NEXT_DAY, session_key=None), tokens=1, nanos=0)
    assert [line.scope for line in lines] == ["daily"]


@pytest.mark.parametrize("scope", ["session", "agent", "user", "daily", "monthly"])
def test_prices_matter_when_any_ceiling_is_in_dollars(scope: str) -> None:
    call = plan(at=LAST_SECOND)
    assert Ceilings(**{scope: Ceiling(usd=Decimal(0))}).needs_price(call)
    assert not Ceilings(**{scope: Ceiling(tokens=5)}).needs_price(call)


@pytest.mark.parametrize(
    ("unit", "value", "words"),
    [
        ("tokens", -1, "a ceiling in tokens must be from 0 to 1,000,000,000,000,000 (got -1)."),
        ("tokens", 10**15 + 1, "(got 1000000000000001)."),
        ("usd", Decimal("-0.01"), "a ceiling in usd must be from 0 to 1,000,000,000 (got -0.01)."),
        ("usd", Decimal("NaN"), "(got NaN)."),
        ("usd", Decimal("Infinity"), "(got Infinity)."),
        ("usd", Decimal("1e30"), "(got 1E+30)."),
    ],
)
def test_what_no_ceiling_can_be(unit: str, value: int | Decimal, words: str) -> None:
    """Refused with the bounds, before a database would choke on it."""
    with pytest.raises(ConfigError) as refused:
        Ceiling(**{unit: value})
    assert str(refused.value).endswith(f"{words} Omit it for no ceiling.")
