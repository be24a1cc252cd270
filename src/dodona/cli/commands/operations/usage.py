"""`dodona usage`: show model usage and cost."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from cyclopts import Parameter, validators
from msgspec import UNSET

from dodona.agent.views.spending import SpendingViews, UsageDocument, UsageSum
from dodona.app.models.factory import ceilings
from dodona.cli.arguments import flag
from dodona.cli.options import DEFAULTS, Options
from dodona.cli.store_access import run_with_store
from dodona.cli.terminal.output import REDACTOR, format_columns, print_text
from dodona.cli.terminal.screen import strip_control_chars
from dodona.core.domain.projects import LOCAL_USER
from dodona.core.domain.usage import GroupBy, UsageQuery
from dodona.core.errors import BadRequest
from dodona.core.json_document import to_builtins

ALL_USERS: Final = "*"
MAX_BAR_WIDTH: Final = 24  # columns
_GROUP_COLUMNS: Final = ("day", "agent_id", "provider", "model", "user_id", "session_key")
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"

User = Annotated[str, Parameter(help="User, or * for all users.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageFilter:
    """Which calls to include, and how to group them."""

    by: Annotated[
        Literal["day", "agent", "model", "session", "user"],
        Parameter(help="Group by."),
    ] = "day"
    since: Annotated[str | None, Parameter(help="First day (UTC), such as 2026-11-01.")] = None
    until: Annotated[str | None, Parameter(help="Last day (UTC).")] = None
    user: User = LOCAL_USER
    limit: Annotated[
        int, Parameter(help="Maximum number of rows.", validator=validators.Number(gte=1, lte=1000))
    ] = 30

    @property
    def period(self) -> UsageQuery:
        """The query for the chosen user and days."""
        user_id = None if self.user == ALL_USERS else self.user
        return UsageQuery.from_days(user_id, since=self.since, until=self.until)


def usage(
    *,
    usage_filter: Annotated[UsageFilter | None, Parameter(name="*")] = None,
    as_csv: Annotated[bool, flag("Print the result as CSV.", name="--csv")] = False,
    options: Options = DEFAULTS,
) -> None:
    """Show model usage and cost."""
    if options.json and as_csv:
        raise BadRequest("--json and --csv cannot be combined.", hint="Use one of them.")
    config = options.load_config()
    shown = usage_filter or UsageFilter()
    report = run_with_store(
        config,
        lambda store: SpendingViews(store, ceilings(config.settings)).usage(
            shown.period, GroupBy(shown.by), max_rows=shown.limit
        ),
    )
    if as_csv:
        print_text(_format_csv(REDACTOR.scrub_all(to_builtins(report.usage))), end="")
    elif report.usage:
        options.print_result(report, _format_chart(report))
    else:
        options.print_result(report, "No model calls in this period.")


def _format_csv(rows: Sequence[dict[str, Any]]) -> str:
    buffer = io.StringIO()
    if rows:
        table = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    return buffer.getvalue()


def _format_chart(report: UsageDocument) -> str:
    """Format usage as a bar chart. Days are in ascending order."""
    rows = report.usage
    ordered = rows[::-1] if report.by is GroupBy.DAY else rows
    maximum = max(map(_total_tokens, rows))
    lines = [(report.by.value, "", "tokens", "input", "output", "calls", "cost")]
    lines += [
        (_group_name(row), draw_bar(_total_tokens(row), maximum), *_format_figures(row))
        for row in ordered
    ]
    lines.append(("total", "", *_format_figures(report.total)))
    return format_columns(lines)


def _total_tokens(row: UsageSum) -> int:
    return row.input_tokens + row.output_tokens


def _group_name(row: UsageSum) -> str:
    names = [name for column in _GROUP_COLUMNS if (name := getattr(row, column)) is not UNSET]
    return strip_control_chars("/".join(name or "-" for name in names))


def _format_figures(row: UsageSum) -> tuple[str, ...]:
    input_tokens, output_tokens = row.input_tokens, row.output_tokens
    cost = f"${row.cost_usd:,.4f}"
    if row.unpriced:
        cost += f" (excluding {row.unpriced} unpriced)"
    counts = (input_tokens + output_tokens, input_tokens, output_tokens, row.calls)
    return *(f"{count:,}" for count in counts), cost


def draw_bar(value: float, maximum: float) -> str:
    """Draw a bar proportional to the maximum. A positive value has at least the thinnest bar."""
    eighths = round(8 * MAX_BAR_WIDTH * value / maximum) if maximum else 0
    whole, rest = divmod(max(1 if value else 0, eighths), 8)
    return "█" * whole + _EIGHTHS[rest].strip()
