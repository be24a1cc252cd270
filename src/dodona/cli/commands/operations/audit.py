"""`dodona audit`: show the audit log."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from time import time
from typing import Annotated, Any

from cyclopts import Parameter, validators

from dodona.agent.views.documents import audit_json
from dodona.app.config.config import Config
from dodona.cli.arguments import AsJson, parse_duration
from dodona.cli.client.connect import load_config_quietly
from dodona.cli.commands.project.config import ConfigFile, InjectedRedactor
from dodona.cli.store_access import open_store
from dodona.cli.terminal.output import format_columns, print_json, print_text
from dodona.cli.terminal.screen import strip_control_chars
from dodona.core.domain.audit import AUDIT_KINDS
from dodona.core.errors import BadRequest, did_you_mean
from dodona.net.redactor import Redactor


def audit(
    *,
    since: Annotated[str | None, Parameter(help="Start, such as 12h, 7d or 2026-11-01.")] = None,
    kind: Annotated[
        str | None, Parameter(help=f"Only this kind: {', '.join(AUDIT_KINDS)}.")
    ] = None,
    limit: Annotated[
        int,
        Parameter(
            help="Maximum number of entries.", validator=validators.Number(gte=1, lte=10_000)
        ),
    ] = 100,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """Show the audit log, oldest entry first."""
    if kind is not None and kind not in AUDIT_KINDS:
        hint = did_you_mean(kind, AUDIT_KINDS) or f"Kinds: {', '.join(AUDIT_KINDS)}."
        raise BadRequest(f"unknown kind {kind!r:.80}.", hint=hint)
    start = 0.0 if since is None else _parse_since(since)
    loaded = load_config_quietly(config, redactor)
    entries = asyncio.run(_load_entries(loaded, redactor, start, kind or "", limit=limit))
    if json:
        print_json(redactor.scrub_all({"entries": entries}))
    elif not entries:
        print_text("No audit entries.")
    else:
        heading = ("time", "kind", "outcome", "user", "token", "address", "details")
        print_text(
            redactor.scrub(strip_control_chars(format_columns([heading, *map(_row, entries)])))
        )


async def _load_entries(
    config: Config, redactor: Redactor, since: float, kind: str, *, limit: int
) -> list[dict[str, Any]]:
    async with open_store(config, redactor) as store:
        entries = await store.audit.page(since=since, kind=kind, limit=limit)
    return [audit_json(each) for each in reversed(entries)]


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    more = f" (and {entry['more']} more before)" if entry["more"] else ""
    return (
        entry["at"][:19].replace("T", " "),
        entry["kind"],
        entry["outcome"],
        entry["user"] or "-",
        str(entry["token"] or "-"),
        entry["address"] or "-",
        entry["what"] + more,
    )


def _parse_since(text: str) -> float:
    """Convert a date or a duration before now to a Unix timestamp."""
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        return time() - parse_duration(text, option="--since")
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
