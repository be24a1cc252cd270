"""`dodona audit`: who was turned away, and who changed what."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from time import time
from typing import Annotated, Any

from cyclopts import Parameter, validators

from dodona.agent.views.documents import audit_json
from dodona.app.config.config import Config
from dodona.cli.arguments import AsJson, seconds_of
from dodona.cli.client.connect import quiet_config
from dodona.cli.commands.project.config import ConfigFile, Hidden
from dodona.cli.store_access import opened_store
from dodona.cli.terminal.output import columns, document, say
from dodona.cli.terminal.screen import plain
from dodona.core.domain.audit import KINDS
from dodona.core.errors import BadRequest, did_you_mean
from dodona.net.redactor import Redactor


def audit(
    *,
    since: Annotated[
        str | None, Parameter(help="From when on: 12h, 7d, or a date like 2026-11-01.")
    ] = None,
    kind: Annotated[str | None, Parameter(help=f"Only these: {', '.join(KINDS)}.")] = None,
    limit: Annotated[
        int, Parameter(help="How many at most.", validator=validators.Number(gte=1, lte=10_000))
    ] = 100,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: Hidden,
) -> None:
    """Show the audit log, the newest last."""
    if kind is not None and kind not in KINDS:
        near = did_you_mean(kind, KINDS) or f"Kinds are {', '.join(KINDS)}."
        raise BadRequest(f"there is no kind {kind!r:.80}.", hint=near)
    start = 0.0 if since is None else _moment(since)
    loaded = quiet_config(config, redactor)
    found = asyncio.run(_page(loaded, redactor, start, kind or "", limit=limit))
    if json:
        document(redactor.scrub_all({"entries": found}))
    elif not found:
        say("Nothing is on record.")
    else:
        heading = ("when", "kind", "outcome", "user", "token", "from", "what")
        say(redactor.scrub(plain(columns([heading, *map(_row, found)]))))


async def _page(
    config: Config, redactor: Redactor, since: float, kind: str, *, limit: int
) -> list[dict[str, Any]]:
    async with opened_store(config, redactor) as store:
        found = await store.audit.page(since=since, kind=kind, limit=limit)
    return [audit_json(each) for each in reversed(found)]


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    more = f" (and {entry['more']} more before it)" if entry["more"] else ""
    return (
        entry["at"][:19].replace("T", " "),
        entry["kind"],
        entry["outcome"],
        entry["user"] or "-",
        str(entry["token"] or "-"),
        entry["address"] or "-",
        entry["what"] + more,
    )


def _moment(text: str) -> float:
    """Seconds since 1970: of a date, or so long ago."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return time() - seconds_of(text, name="--since")
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
