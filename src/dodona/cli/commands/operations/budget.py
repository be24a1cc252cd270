"""`dodona budget`: what may be spent, and what is left of it."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated, Any, Literal, TypeAlias

from cyclopts import App, Parameter, validators

from dodona.agent.views import SpendingViews
from dodona.app.config.config import Config, file_to_edit, is_implicit_file, load_config
from dodona.app.config.edit import edit_config
from dodona.app.models.factory import ceilings
from dodona.cli.arguments import AsJson
from dodona.cli.client.connect import load_config_quietly
from dodona.cli.commands.operations.usage import ALL_USERS, User, draw_bar
from dodona.cli.commands.project.config import ConfigFile, InjectedRedactor
from dodona.cli.store_access import open_store
from dodona.cli.terminal.output import format_columns, print_json, print_text
from dodona.cli.terminal.screen import strip_control_chars
from dodona.core.domain.projects import LOCAL_USER
from dodona.core.errors import BadRequest
from dodona.documents import KeyPath
from dodona.net.redactor import Redactor

app = App(name="budget", help="Tell and set what may be spent.")

Scope: TypeAlias = Literal["session", "agent", "user", "daily", "monthly"]


@app.command
def status(
    *,
    user: User = LOCAL_USER,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """Tell what is used, held and left of each budget that has a ceiling."""
    loaded = load_config_quietly(config, redactor)
    whose = None if user == ALL_USERS else user
    found = redactor.scrub_all(asyncio.run(_load_budgets(loaded, redactor, whose)))
    if json:
        print_json({"budgets": found})
    elif not found:
        print_text("There is no ceiling: nothing limits what is spent.")
    else:
        heading = ("budget", "", "used", "held", "left", "of", "begins anew")
        print_text(format_columns([heading, *map(_row, found)]))


@app.command(name="set")
def set_(
    scope: Annotated[Scope, Parameter(name="SCOPE", help="What has a budget.")],
    /,
    *,
    tokens: Annotated[
        int | None, Parameter(help="The most, in tokens.", validator=validators.Number(gte=0))
    ] = None,
    usd: Annotated[
        float | None, Parameter(help="The most, in US dollars.", validator=validators.Number(gte=0))
    ] = None,
    none: Annotated[
        bool, Parameter(negative="", show_default=False, help="Take its ceilings away.")
    ] = False,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """Set a ceiling in the config file; a gateway that runs takes it at once."""
    given = {name: value for name, value in (("tokens", tokens), ("usd", usd)) if value is not None}
    if bool(given) == none:
        raise BadRequest(
            "--tokens, --usd or --none is needed.", hint=f"Like: dodona budget set {scope} --usd 5"
        )
    file = file_to_edit(os.environ, config)
    changes: dict[KeyPath, Any] = {("budgets", scope): None} if none else {}
    changes |= {("budgets", scope, name): value for name, value in given.items()}
    edit_config(file, changes, is_implicit=is_implicit_file(os.environ, file, config))
    made = load_config(os.environ, config).settings.budgets
    now = getattr(made, scope)
    if json:
        told = {"file": str(file), "scope": scope, "tokens": now.tokens, "usd": now.usd}
        print_json(redactor.scrub_all(told))
    else:
        print_text(
            redactor.scrub(f"{file}: budgets.{scope} is {_format_ceiling(now.tokens, now.usd)}")
        )


def _format_ceiling(tokens: int | None, usd: float | None) -> str:
    known = [_format_amount(tokens, "tokens")] if tokens is not None else []
    known += [_format_amount(usd, "usd")] if usd is not None else []
    return f"{' and '.join(known)} at most." if known else "without a ceiling."


async def _load_budgets(
    config: Config, redactor: Redactor, user_id: str | None
) -> list[dict[str, Any]]:
    async with open_store(config, redactor) as store:
        views = SpendingViews(store, ceilings(config.settings))
        return await views.budgets(user_id, max_rows=100)


def _row(budget: dict[str, Any]) -> tuple[str, ...]:
    ceiling = budget["ceiling"]
    spent = min(budget["used"] + budget["held"], ceiling)
    drawn = draw_bar(spent, ceiling) if ceiling else draw_bar(1, 1)
    amounts = (
        _format_amount(budget[name], budget["unit"]) for name in ("used", "held", "left", "ceiling")
    )
    again = budget["resets_at"]
    return (strip_control_chars(budget["scope"]), drawn, *amounts, again[:10] if again else "never")


def _format_amount(amount: float, unit: str) -> str:
    return f"{amount:,} tokens" if unit == "tokens" else f"${amount:,.4f}"
