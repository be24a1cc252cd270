"""`dodona budget`: what may be spent, and what is left of it."""

from __future__ import annotations

import asyncio
from typing import Any

from cyclopts import App

from dodona.agent.views import SpendingViews
from dodona.app.building import ceilings
from dodona.app.config import Config
from dodona.cli.arguments import AsJson
from dodona.cli.config import ConfigFile, Hidden
from dodona.cli.opening import opened_store
from dodona.cli.output import columns, document, say
from dodona.cli.reaching import quiet_config
from dodona.cli.screen import plain
from dodona.cli.usage import EVERYBODY, User, bar
from dodona.core.users import LOCAL_USER
from dodona.net.redactor import Redactor

app = App(name="budget", help="Tell and set what may be spent.")


@app.command
def status(
    *,
    user: User = LOCAL_USER,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: Hidden,
) -> None:
    """Tell what is used, held and left of each budget that has a ceiling."""
    loaded = quiet_config(config, redactor)
    whose = None if user == EVERYBODY else user
    found = redactor.scrub_all(asyncio.run(_look(loaded, redactor, whose)))
    if json:
        document({"budgets": found})
    elif not found:
        say("There is no ceiling: nothing limits what is spent.")
    else:
        heading = ("budget", "", "used", "held", "left", "of", "begins anew")
        say(columns([heading, *map(_row, found)]))


async def _look(config: Config, redactor: Redactor, user_id: str | None) -> list[dict[str, Any]]:
    async with opened_store(config, redactor) as store:
        views = SpendingViews(store, ceilings(config.settings))
        return await views.budgets(user_id, most=100)


def _row(budget: dict[str, Any]) -> tuple[str, ...]:
    spent, ceiling = budget["used"] + budget["held"], budget["ceiling"]
    share = round(1000 * min(1.0, spent / ceiling)) if ceiling else 1000
    amounts = (_told(budget[name], budget["unit"]) for name in ("used", "held", "left", "ceiling"))
    again = budget["resets_at"]
    return (plain(budget["scope"]), bar(share, 1000), *amounts, again[:10] if again else "never")


def _told(amount: float, unit: str) -> str:
    return f"{amount:,} tokens" if unit == "tokens" else f"${amount:,.4f}"
