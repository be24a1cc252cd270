"""`dodona usage`: what calls of models came to."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from cyclopts import Parameter, validators

from dodona.agent.views import SpendingViews
from dodona.app.config.config import Config
from dodona.app.models.factory import ceilings
from dodona.cli.arguments import AsJson
from dodona.cli.client.connect import load_config_quietly
from dodona.cli.commands.project.config import ConfigFile, InjectedRedactor
from dodona.cli.store_access import open_store
from dodona.cli.terminal.output import format_columns, print_json, print_text
from dodona.cli.terminal.screen import strip_control_chars
from dodona.core.domain.projects import LOCAL_USER
from dodona.core.domain.usage import GroupBy, UsageQuery
from dodona.core.errors import BadRequest
from dodona.net.redactor import Redactor

ALL_USERS: Final = "*"
MAX_BAR_WIDTH: Final = 24  # of a bar
_GROUP_COLUMNS: Final = ("day", "agent_id", "provider", "model", "session_key", "user_id")
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"

User = Annotated[str, Parameter(help="Whose; * is everybody's.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageFilter:
    """The calls that are added up."""

    by: Annotated[
        Literal["day", "agent", "model", "session", "user"],
        Parameter(help="What calls are put together by."),
    ] = "day"
    since: Annotated[str | None, Parameter(help="The first day, of UTC, as in 2026-11-01.")] = None
    until: Annotated[str | None, Parameter(help="The last day.")] = None
    user: User = LOCAL_USER
    limit: Annotated[
        int, Parameter(help="How many at most.", validator=validators.Number(gte=1, lte=1000))
    ] = 30

    @property
    def period(self) -> UsageQuery:
        user_id = None if self.user == ALL_USERS else self.user
        return UsageQuery.from_days(user_id, since=self.since, until=self.until)


def usage(
    *,
    usage_filter: Annotated[UsageFilter | None, Parameter(name="*")] = None,
    as_csv: Annotated[
        bool,
        Parameter(name="--csv", negative="", show_default=False, help="Print a table for sheets."),
    ] = False,
    json: AsJson = False,
    config: ConfigFile = None,
    redactor: InjectedRedactor,
) -> None:
    """Tell what calls of models came to: tokens, and dollars as far as prices are known."""
    if json and as_csv:
        raise BadRequest("--json and --csv are two things.", hint="Leave one of them out.")
    loaded = load_config_quietly(config, redactor)
    found = redactor.scrub_all(
        asyncio.run(_load_usage(loaded, redactor, usage_filter or UsageFilter()))
    )
    if json:
        print_json(found)
    elif as_csv:
        print_text(_format_csv(found["usage"]), end="")
    elif not found["usage"]:
        print_text("No model was called in that time.")
    else:
        print_text(_format_chart(found))


async def _load_usage(
    config: Config, redactor: Redactor, usage_filter: UsageFilter
) -> dict[str, Any]:
    async with open_store(config, redactor) as store:
        views = SpendingViews(store, ceilings(config.settings))
        return await views.usage(
            usage_filter.period, GroupBy(usage_filter.by), max_rows=usage_filter.limit
        )


def _format_csv(rows: Sequence[dict[str, Any]]) -> str:
    written = io.StringIO()
    if rows:
        table = csv.DictWriter(written, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    return written.getvalue()


def _format_chart(found: dict[str, Any]) -> str:
    """Days from the oldest on, so that time goes down; the longest bar is the largest sum."""
    rows: list[dict[str, Any]] = found["usage"]
    shown = rows[::-1] if found["by"] == "day" else rows
    most = max(map(_total_tokens, rows))
    lines = [(found["by"], "", "tokens", "read", "written", "calls", "cost")]
    lines += [
        (_group_name(row), draw_bar(_total_tokens(row), most), *_format_figures(row))
        for row in shown
    ]
    lines.append(("all", "", *_format_figures(found["total"])))
    return format_columns(lines)


def _total_tokens(row: dict[str, Any]) -> int:
    return row["input_tokens"] + row["output_tokens"]


def _group_name(row: dict[str, Any]) -> str:
    names = [row[name] for name in row if name in _GROUP_COLUMNS]
    return strip_control_chars("/".join(name or "-" for name in names))


def _format_figures(row: dict[str, Any]) -> tuple[str, ...]:
    read, written = row["input_tokens"], row["output_tokens"]
    cost = f"${row['cost_usd']:,.4f}"
    if row["unpriced"]:
        cost += f" and {row['unpriced']} of unknown price"
    return f"{read + written:,}", f"{read:,}", f"{written:,}", f"{row['calls']:,}", cost


def draw_bar(value: float, maximum: float) -> str:
    """As long as its share of the most; what is something is never drawn as nothing."""
    eighths = round(8 * MAX_BAR_WIDTH * value / maximum) if maximum else 0
    whole, rest = divmod(max(1 if value else 0, eighths), 8)
    return "█" * whole + _EIGHTHS[rest].strip()
