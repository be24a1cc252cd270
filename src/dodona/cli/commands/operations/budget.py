"""`dodona budget`: show and set budgets."""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal, TypeAlias

from cyclopts import App, Parameter, validators

from dodona.agent.views.spending import BudgetDocument, SpendingViews
from dodona.app.config.config import file_to_edit, is_implicit_file, load_config
from dodona.app.config.edit import edit_config
from dodona.app.models.factory import ceilings
from dodona.cli.arguments import flag
from dodona.cli.commands.operations.usage import ALL_USERS, User, draw_bar
from dodona.cli.options import DEFAULTS, Options
from dodona.cli.store_access import run_with_store
from dodona.cli.terminal.screen import strip_control_chars
from dodona.core.domain.projects import LOCAL_USER
from dodona.core.errors import BadRequest
from dodona.documents import KeyPath

app = App(name="budget", help="Show and set budgets.")

Scope: TypeAlias = Literal["session", "agent", "user", "daily", "monthly"]


@app.command
def status(*, user: User = LOCAL_USER, options: Options = DEFAULTS) -> None:
    """Show the used, reserved and remaining amount of each budget."""
    config = options.load_config()
    user_id = None if user == ALL_USERS else user
    budgets = run_with_store(
        config,
        lambda store: SpendingViews(store, ceilings(config.settings)).budgets(
            user_id, max_rows=100
        ),
    )
    options.print_table(
        {"budgets": budgets},
        ("budget", "", "used", "reserved", "left", "limit", "since", "resets"),
        map(_row, budgets),
        empty="No budgets are set: spending is unlimited.",
    )


@app.command(name="set")
def set_(
    scope: Annotated[Scope, Parameter(name="SCOPE", help="Scope of the budget.")],
    /,
    *,
    tokens: Annotated[
        int | None, Parameter(help="Limit in tokens.", validator=validators.Number(gte=0))
    ] = None,
    usd: Annotated[
        float | None, Parameter(help="Limit in US dollars.", validator=validators.Number(gte=0))
    ] = None,
    none: Annotated[bool, flag("Remove the limits.")] = False,
    options: Options = DEFAULTS,
) -> None:
    """Set a budget in the config file.

    A running gateway applies it immediately.
    """
    limits = {
        name: value for name, value in (("tokens", tokens), ("usd", usd)) if value is not None
    }
    if bool(limits) == none:
        raise BadRequest(
            "give --tokens, --usd or --none.", hint=f"Example: dodona budget set {scope} --usd 5"
        )
    file = file_to_edit(os.environ, options.config)
    changes: dict[KeyPath, Any] = {("budgets", scope): None} if none else {}
    changes |= {("budgets", scope, name): value for name, value in limits.items()}
    edit_config(file, changes, is_implicit=is_implicit_file(os.environ, file, options.config))
    budgets = load_config(os.environ, options.config).settings.budgets
    budget = getattr(budgets, scope)
    options.print_result(
        {"file": str(file), "scope": scope, "tokens": budget.tokens, "usd": budget.usd},
        f"{file}: budgets.{scope} is {_format_limit(budget.tokens, budget.usd)}",
    )


def _format_limit(tokens: int | None, usd: float | None) -> str:
    amounts = [_format_amount(tokens, "tokens")] if tokens is not None else []
    amounts += [_format_amount(usd, "usd")] if usd is not None else []
    return f"at most {' and '.join(amounts)}." if amounts else "unlimited."


def _row(budget: BudgetDocument) -> tuple[str, ...]:
    ceiling = budget.ceiling
    spent = min(budget.used + budget.held, ceiling)
    bar = draw_bar(spent, ceiling) if ceiling else draw_bar(1, 1)
    amounts = (
        _format_amount(amount, budget.unit.value)
        for amount in (budget.used, budget.held, budget.left, ceiling)
    )
    since = budget.period_start[:10] if budget.period_start else "first use"
    resets = budget.resets_at[:10] if budget.resets_at else "never"
    return (strip_control_chars(budget.scope), bar, *amounts, since, resets)


def _format_amount(amount: float, unit: str) -> str:
    return f"{amount:,} tokens" if unit == "tokens" else f"${amount:,.4f}"
