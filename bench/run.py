"""Cost of a run, compared with openai-agents, pydantic-ai, langgraph, agno and a lower bound.

    python bench/run.py [--quick] [--only PART …] [--no-peers] [--json FILE]

Every contestant runs in its own process and stores its messages in its own SQLite file; one model
server, which sends prepared bytes, serves them all. Rounds alternate over the contestants, so that
load on the machine affects all of them; the best round of each counts, and the median for
latencies. A round in which a run fails does not count, and is reported as an error. CPU time is
that of the whole process, including threads.

Dodona is called through `Oracle.ask` and `Oracle.stream_chunks`, as in the gateway, with tree,
journal, metering and persistence on. The lower bound ("limit") is aiohttp, json and one commit per
run, and nothing else. Each run has a new session, except where sessions are measured.

Parts: cpu, sessions (64 at once), stream (many answers on one core), history, latency, help, idle.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from time import perf_counter

from figures import KINDS, Figures, Target, table, targets
from race import PEERS, Entrant, Lost, Reply, note, race

OURS = ("dodona", "limit")
AT_ONCE = 64
SHORT = 10  # messages
BUSY = 0.5  # load average
CORE_OF_THE_SERVER, CORE_OF_THE_CONTESTANT = 0, 1


@dataclass(frozen=True, slots=True)
class Size:
    """The amount of work of each part."""

    rounds: int
    runs: int  # per round
    peer_runs: int
    each: int  # questions in each concurrent session
    heavy_rounds: int
    chunks: int  # of each concurrent answer
    sessions: int  # idle sessions


FULL = Size(7, 60, 12, 8, 3, 400, 2000)
QUICK = Size(3, 20, 3, 4, 1, 200, 1000)


@dataclass(frozen=True, slots=True)
class Race:
    """Shared by all parts."""

    entrants: dict[str, Entrant]
    figures: Figures
    size: Size

    def runs_of(self, name: str) -> int:
        return self.size.runs if name in OURS else self.size.peer_runs

    def named(self, names: Sequence[str]) -> list[Entrant]:
        return [self.entrants[name] for name in names if name in self.entrants]

    def take(self, entrant: Entrant, reply: Reply, **found: str) -> None:
        """Store members of a reply under the names of the figures, unless runs failed."""
        lost = reply["lost"]
        self.figures.add_lost(entrant.name, lost)
        if lost:
            raise Lost(f"{entrant.name} lost {lost} runs")
        for member, figure in found.items():
            self.figures.add(figure, entrant.name, reply[member])

    async def each(
        self, entrants: Sequence[Entrant], work: Callable[[Entrant], Awaitable[None]]
    ) -> None:
        """Call the function for each contestant; report a failure and continue with the others."""
        for entrant in entrants:
            try:
                await work(entrant)
            except Lost as lost:
                note(f"  {lost}")
                if str(lost) not in self.figures.faults:
                    self.figures.faults.append(str(lost))


# -- the parts -------------------------------------------------------------------------------


async def cpu(race: Race) -> None:
    """CPU time of a run: no tools, three rounds of tools, five tools at once; and paced."""
    everybody = list(race.entrants.values())

    async def warm_up(entrant: Entrant) -> None:
        for kind in KINDS:
            await entrant.order("runs", model=kind, count=max(3, race.runs_of(entrant.name) // 3))

    await race.each(everybody, warm_up)
    for number in range(race.size.rounds):
        for kind in (*KINDS, "paced"):
            note(f"cpu, round {number + 1} of {race.size.rounds}: {kind}")

            async def measure(entrant: Entrant, kind: str = kind) -> None:
                count = race.runs_of(entrant.name)
                reply = await entrant.counted("runs", count, model=kind, count=count)
                race.take(entrant, reply, cpu_ms=f"CPU ms, {kind}")

            await race.each(everybody, measure)


async def sessions(race: Race) -> None:
    """Runs per second with 64 concurrent sessions, without tools and with three rounds of tools."""
    for number, kind in product(range(race.size.heavy_rounds), ("none", "rounds3")):
        note(f"{AT_ONCE} sessions, round {number + 1} of {race.size.heavy_rounds}: {kind}")
        label = f"64 sessions, {kind}"

        async def measure(entrant: Entrant, kind: str = kind, label: str = label) -> None:
            each = race.size.each if entrant.name in OURS else 1
            reply = await entrant.counted(
                "concurrent", AT_ONCE * each, model=kind, sessions=AT_ONCE, each=each
            )
            race.figures.add(f"{label}: runs lost", entrant.name, reply["lost"])
            race.take(
                entrant,
                reply,
                per_second=f"{label}: runs/s",
                cpu_ms=f"{label}: CPU ms a run",
            )

        await race.each(list(race.entrants.values()), measure)


async def stream(race: Race) -> None:
    """300, then 500 concurrent answers with 50 chunks per second each, on one core."""
    chosen = race.named(OURS)
    all_cores = [CORE_OF_THE_SERVER, CORE_OF_THE_CONTESTANT]
    for answers in (300, 500):
        for number in range(race.size.heavy_rounds):
            note(f"{answers} answers at once, round {number + 1} of {race.size.heavy_rounds}")

            async def measure(entrant: Entrant, answers: int = answers) -> None:
                entrant.server.pin([CORE_OF_THE_SERVER])
                await entrant.order("pin", cores=[CORE_OF_THE_CONTESTANT])
                try:
                    reply = await entrant.order(
                        "stream", answers=answers, chunks=race.size.chunks, ramp=1.5
                    )
                finally:
                    await entrant.order("pin", cores=all_cores)
                    entrant.server.pin(all_cores)
                race.take(
                    entrant,
                    reply,
                    slowest=f"{answers} answers: slowest, chunks/s",
                    together_per_second=f"{answers} answers: chunks/s in all",
                    p50_ms=f"{answers} answers: late p50 ms",
                    p99_ms=f"{answers} answers: late p99 ms",
                    core_percent=f"{answers} answers: % of the core",
                )

            await race.each(chosen, measure)


async def history(race: Race) -> None:
    """CPU time of a run in conversations of different lengths; 100,000 messages only for Dodona."""
    everybody = list(race.entrants.values())
    rounds = race.size.heavy_rounds + 1

    async def fill(entrant: Entrant) -> None:
        for size in lengths(entrant)[1:]:
            await entrant.order("fill", session=f"past-{size}", messages=size)
            await entrant.order("runs", model="none", count=1, sessions=[f"past-{size}"])

    note("history: filling")
    await race.each(everybody, fill)
    for number in range(rounds):
        note(f"history, round {number + 1} of {rounds}")

        async def measure(entrant: Entrant, turn: int = number) -> None:
            # The first run after a pause costs more, so the order of lengths varies.
            for size in lengths(entrant)[:: -1 if turn % 2 else 1]:
                await hot(race, entrant, size, f"hot-{turn}")
                if entrant.name in OURS:
                    await cold(race, entrant, size, f"cold-{turn}")

        await race.each(everybody, measure)


def lengths(entrant: Entrant) -> list[int]:
    return [SHORT, 10_000] + [100_000] * (entrant.name in OURS)


async def pasts(entrant: Entrant, size: int, name: str, count: int) -> list[str]:
    """Sessions of a given length, one for each run, so that short ones stay short."""
    if size != SHORT:
        return [f"past-{size}"] * count
    sessions = [f"{name}-{n}" for n in range(count)]
    for session in sessions:
        await entrant.order("fill", session=session, messages=SHORT - 2)
    return sessions


async def hot(race: Race, entrant: Entrant, size: int, name: str) -> None:
    """In sessions with a recent question."""
    count = min(race.size.runs, 40) if entrant.name in OURS else 1
    sessions = await pasts(entrant, size, name, count)
    await entrant.order("runs", model="none", count=count, sessions=sessions)
    reply = await entrant.counted("runs", count, model="none", count=count, sessions=sessions)
    race.take(entrant, reply, cpu_ms=f"CPU ms after {size:,} messages")


async def cold(race: Race, entrant: Entrant, size: int, name: str) -> None:
    """In sessions that are not cached in this process."""
    count = min(race.size.runs, 15)
    sessions = await pasts(entrant, size, name, count)
    reply = await entrant.counted("cold", count, model="none", sessions=sessions)
    race.take(entrant, reply, cpu_ms=f"CPU ms after {size:,} messages, cold")


async def latency(race: Race) -> None:
    """Time from sending a chunk until it is received: all at once, or one per millisecond."""
    for number in range(race.size.rounds):
        for how in ("burst", "paced"):
            note(f"latency, round {number + 1} of {race.size.rounds}: {how}")

            async def measure(entrant: Entrant, how: str = how) -> None:
                count = race.runs_of(entrant.name)
                reply = await entrant.order("latency", model=how, count=count)
                race.take(
                    entrant, reply, p50_ms=f"late p50 ms, {how}", p99_ms=f"late p99 ms, {how}"
                )

            await race.each(list(race.entrants.values()), measure)


async def show_help(race: Race) -> None:
    """Wall time of `dodona --help`."""
    command = [Path(sys.executable).with_name("dodona"), "--help"]
    for _ in range(10):
        begun = perf_counter()
        await asyncio.to_thread(subprocess.run, command, check=True, stdout=subprocess.DEVNULL)
        race.figures.add("dodona --help, ms", "dodona", (perf_counter() - begun) * 1e3)


async def idle(race: Race) -> None:
    """Memory of a session that is idle after one question."""
    note(f"{race.size.sessions:,} idle sessions")

    async def measure(entrant: Entrant) -> None:
        count = race.size.sessions
        reply = await entrant.order("idle", model="none", warm_up=count // 4, sessions=count)
        race.take(entrant, reply, bytes="idle session, bytes")

    await race.each(race.named(("dodona",)), measure)


# Idle memory first: later parts leave more behind than two thousand sessions.
PARTS: dict[str, Callable[[Race], Awaitable[None]]] = {
    "help": show_help,
    "idle": idle,
    "cpu": cpu,
    "latency": latency,
    "history": history,
    "sessions": sessions,
    "stream": stream,
}


# -- main ------------------------------------------------------------------------------------


async def bench(parts: Sequence[str], names: Sequence[str], size: Size, python: Path) -> Figures:
    figures = Figures()
    if (load := os.getloadavg()[0]) > BUSY:
        note(f"the machine is busy (load {load:.1f}): throughput and latency are not reliable")
    async with race(names, python) as entrants:
        for name, part in PARTS.items():
            if name in parts:
                await part(Race(entrants, figures, size))
    return figures


def show(found: Sequence[Target]) -> None:
    width = max(len(target.what) for target in found)
    for target in found:
        print(f"  {target.verdict:12}  {target.what:{width}}  {target.found}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="about three minutes")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), metavar="PART")
    parser.add_argument("--no-peers", action="store_true", help="only Dodona and the limit")
    parser.add_argument(
        "--peers-python",
        type=Path,
        default=Path(".venv-bench/bin/python"),
        help="a Python with the peers installed (group `bench-run`)",
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    given = parser.parse_args()
    peers = () if given.no_peers else PEERS
    if peers and not given.peers_python.exists():
        note(f"{given.peers_python} does not exist: the peers are skipped (see make bench-run)")
        peers = ()
    names = (*OURS, *peers)
    size = QUICK if given.quick else FULL
    figures = asyncio.run(bench(given.only, names, size, given.peers_python))
    found = [t for t in targets(figures, peers) if t.met is not None or given.only == list(PARTS)]
    print(table(figures, names) + "\n")
    for fault in figures.faults:
        print(f"  ERROR         {fault}")
    show(found)
    document = {
        **figures.as_json(),
        "targets": {t.what: {"found": t.found, "verdict": t.verdict} for t in found},
    }
    if given.json:
        given.json.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 1 if figures.faults or any(t.met is False for t in found) else 0


if __name__ == "__main__":
    sys.exit(main())
