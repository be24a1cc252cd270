"""`dodona audit`: show the audit log."""

from __future__ import annotations

from datetime import UTC, datetime
from time import time
from typing import Annotated

from cyclopts import Parameter, validators

from dodona.cli.arguments import parse_duration
from dodona.cli.options import DEFAULTS, Options
from dodona.cli.store_access import run_with_store
from dodona.core.domain.audit import AUDIT_KINDS, AuditEntry
from dodona.core.errors import BadRequest, did_you_mean


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
    options: Options = DEFAULTS,
) -> None:
    """Show the audit log, oldest entry first."""
    if kind is not None and kind not in AUDIT_KINDS:
        hint = did_you_mean(kind, AUDIT_KINDS) or f"Kinds: {', '.join(AUDIT_KINDS)}."
        raise BadRequest(f"unknown kind {kind!r:.80}.", hint=hint)
    start = 0.0 if since is None else _parse_since(since)
    newest_first = run_with_store(
        options.load_config(),
        lambda store: store.audit.page(since=start, kind=kind or "", limit=limit),
    )
    entries = newest_first[::-1]
    options.print_table(
        {"entries": entries},
        ("time", "kind", "outcome", "user", "token", "address", "details"),
        map(_row, entries),
        empty="No audit entries.",
    )


def _row(entry: AuditEntry) -> tuple[str, ...]:
    more = f" (and {entry.more} more before)" if entry.more else ""
    return (
        str(entry.at)[:19].replace("T", " "),
        entry.kind,
        entry.outcome,
        entry.user_id or "-",
        str(entry.token_id or "-"),
        entry.address or "-",
        entry.what + more,
    )


def _parse_since(text: str) -> float:
    """Convert a date or a duration before now to a Unix timestamp."""
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        return time() - parse_duration(text, option="--since")
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
