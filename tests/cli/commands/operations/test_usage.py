"""`dodona usage` and `dodona budget`: what was spent, what is left, and new ceilings."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from dodona.cli.commands.operations.usage import MAX_BAR_WIDTH, draw_bar
from dodona.store import Store, TokenRecord
from tests.cli.running import dodona
from tests.stored import add_record

CONFIG = """# what this machine may spend
[budgets]
daily = 500_000  # tokens

[budgets.user]
usd = 5.0
"""


async def spend(file: Path) -> None:
    async with await Store.open(str(file), redact=str) as store:
        for day, tokens, usd in ((15, 4000, 1.5), (16, 999, None), (16, 1000, 0.25)):
            at = datetime(2026, 11, day, 12, tzinfo=UTC).timestamp()
            for user in ("local", "ada"):
                entry = TokenRecord(
                    *(user, "oracle", "openai", "oak\x1b[2J", tokens, 1, usd),
                    session_key=f"oracle:web:{user}:main",
                    timestamp=at,
                )
                await add_record(store, entry)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / ".dodona").mkdir()
    (tmp_path / ".dodona" / "config.toml").write_text(CONFIG)
    asyncio.run(spend(tmp_path / ".dodona" / "dodona.db"))
    return tmp_path


def ran(folder: Path, *words: str) -> str:
    done = dodona(folder, *words)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_usage_is_drawn(folder: Path) -> None:
    """Days from the oldest on, one's own; the longest bar is the largest day."""
    heading, first, second, total = ran(folder, "usage").splitlines()
    assert heading.split() == ["day", "tokens", "input", "output", "calls", "cost"]
    assert first.split() == [
        "2026-11-15",
        "█" * MAX_BAR_WIDTH,
        "4,001",
        "4,000",
        "1",
        "1",
        "$1.5000",
    ]
    assert second.split()[:1] == ["2026-11-16"]
    assert second.endswith("$0.2500 (excluding 1 unpriced)")
    assert total.split()[:3] == ["total", "6,002", "5,999"]


def test_usage_for_programs(folder: Path) -> None:
    """As JSON, and as a table; of all users, and by what one asks for."""
    found = json.loads(ran(folder, "usage", "--by", "user", "--user", "*", "--json"))
    assert [(each["user_id"], each["calls"]) for each in found["usage"]] == [
        ("ada", 3),
        ("local", 3),
    ]
    assert found["total"]["cost_usd"] == 3.5
    table = csv.DictReader(io.StringIO(ran(folder, "usage", "--by", "session", "--csv")))
    (row,) = table
    assert (row["session_key"], row["input_tokens"]) == ("oracle:web:local:main", "5999")
    day = ran(folder, "usage", "--since", "2026-11-16", "--until", "2026-11-16", "--csv")
    assert [line.split(",")[0] for line in day.splitlines()] == ["day", "2026-11-16"]
    assert "\x1b" not in ran(folder, "usage", "--by", "model")
    assert ran(folder, "usage", "--user", "nobody") == "No model calls in this period.\n"
    done = dodona(folder, "usage", "--csv", "--json")
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (2, "bad_request")


def test_budgets_are_told_and_set(folder: Path) -> None:
    """What the records say counts from the beginning; the file keeps all that nobody spoke of."""
    user, daily = json.loads(ran(folder, "budget", "status", "--json"))["budgets"]
    assert (user["scope"], user["used"], user["left"]) == ("user:local", 1.75, 3.25)
    assert (user["period_start"], user["resets_at"]) == (None, None)
    today = date.fromisoformat(daily["period"])
    midnights = [f"{day}T00:00:00Z" for day in (today, today + timedelta(days=1))]
    assert daily["ceiling"] == 500_000
    assert [daily["period_start"], daily["resets_at"]] == midnights
    file = folder / ".dodona" / "config.toml"
    told = ran(folder, "budget", "set", "user", "--tokens", "9000")
    assert told == f"{file}: budgets.user is at most 9,000 tokens and $5.0000.\n"
    rows = ran(folder, "budget", "status").splitlines()
    assert [row.split()[0] for row in rows[1:]] == ["user:local", "user:local", "daily"]
    assert rows[1].split()[-3:] == ["first", "use", "never"]
    assert rows[3].split()[-2] == daily["period_start"][:10]
    for scope in ("user", "daily"):
        ran(folder, "budget", "set", scope, "--none")
    assert ran(folder, "budget", "status").startswith("No budgets are set")
    assert file.read_text().startswith("# what this machine may spend\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("daily", "--usd", "1", "--none"), "give --tokens, --usd or --none."),
        (("daily", "--tokens", "9" * 20), "budgets.daily.tokens"),
    ],
)
def test_what_no_budget_can_be(folder: Path, words: tuple[str, ...], told: str) -> None:
    """The file stays as it was."""
    done = dodona(folder, "budget", "set", *words)
    assert done.returncode in (2, 3)
    assert told in done.stderr
    assert (folder / ".dodona" / "config.toml").read_text() == CONFIG


@pytest.mark.parametrize(
    ("value", "most", "drawn"),
    [(0, 10, ""), (1, 10**9, "▏"), (10, 10, "█" * MAX_BAR_WIDTH), (0, 0, "")],
)
def test_bars(value: int, most: int, drawn: str) -> None:
    """What is something is never drawn as nothing."""
    assert draw_bar(value, most) == drawn
