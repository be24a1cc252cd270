"""Run one contestant in its own process: read orders from stdin, and reply with their cost.

    python bench/contestant.py NAME BASE_URL FOLDER

Each order is a line of JSON `{"do": …, …}`, and so is each reply. CPU time is that of the whole
process, including threads.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import importlib
import json
import os
import resource
import statistics
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, perf_counter_ns, process_time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contestants.contestant import Contender

# After installed packages: a benchmark here may have the name of the package it measures.
sys.path.append(sys.path.pop(0))

MODULES = {
    "dodona": "contestants.ours",
    "limit": "contestants.limit",
    "openai-agents": "contestants.openai_agents",
    "pydantic-ai": "contestants.pydantic_agents",
    "langgraph": "contestants.langgraph_agents",
    "agno": "contestants.agno_agents",
}
PLAIN, STAMPED = len(" word00"), len(" 0000000000000000")
PATIENCE = 120.0  # seconds for one answer


# -- listeners -------------------------------------------------------------------------------


@dataclass(slots=True)
class Length:
    """Counts the characters received."""

    total: int = 0

    def __call__(self, text: str) -> None:
        self.total += len(text)


@dataclass(slots=True)
class Stamps:
    """The receive time of each chunk, and its delay since it was sent."""

    heard: list[int] = field(default_factory=list)
    late: list[int] = field(default_factory=list)

    def __call__(self, text: str) -> None:
        now = perf_counter_ns()
        for sent in text.split():
            self.heard.append(now)
            self.late.append(now - int(sent))

    @property
    def total(self) -> int:
        return len(self.late) * STAMPED


def chunks_of(model: str) -> int:
    return int(model.removeprefix("stream50-")) if model.startswith("stream50-") else 50


def length_of(model: str) -> int:
    has_stamps = model in ("burst", "paced") or model.startswith("stream50-")
    return chunks_of(model) * (STAMPED if has_stamps else PLAIN)


# -- orders ----------------------------------------------------------------------------------


class Orders:
    """The orders, one method each."""

    def __init__(self, contestant: Contender) -> None:
        self._contestant = contestant
        self._sessions = 0

    def _fresh(self) -> str:
        self._sessions += 1
        return f"session-{self._sessions}"

    async def _open(self, count: int) -> list[str]:
        sessions = [self._fresh() for _ in range(count)]
        await self._contestant.open(sessions)
        return sessions

    async def _ask(self, session: str, model: str, hear: Length | Stamps) -> bool:
        """Return whether the whole answer was received."""
        try:
            async with asyncio.timeout(PATIENCE):
                await self._contestant.ask(session, model, hear)
        except Exception:  # noqa: BLE001 - a run that fails is a figure here
            if os.environ.get("BENCH_TRACEBACKS"):
                traceback.print_exc()
            return False
        if hear.total != length_of(model) and os.environ.get("BENCH_TRACEBACKS"):
            print(f"{session}: {hear.total} of {length_of(model)} characters", file=sys.stderr)
        return hear.total == length_of(model)

    async def runs(self, *, model: str, count: int, sessions: Sequence[str] = ()) -> dict[str, Any]:
        """Run questions one after the other, each in a new session unless sessions are given."""
        gc.collect()
        wall, cpu, lost = perf_counter(), process_time(), 0
        for number in range(count):
            session = sessions[number % len(sessions)] if sessions else self._fresh()
            lost += not await self._ask(session, model, Length())
        cpu, wall = process_time() - cpu, perf_counter() - wall
        return {"cpu_ms": cpu / count * 1e3, "wall_ms": wall / count * 1e3, "lost": lost}

    async def cold(self, *, model: str, sessions: Sequence[str]) -> dict[str, Any]:
        """The same, but another process first adds to the session, so caches are stale."""
        spent: list[float] = []
        lost = 0
        for session in sessions:
            await self._contestant.fill(session, 2)
            cpu = process_time()
            lost += not await self._ask(session, model, Length())
            spent.append(process_time() - cpu)
        return {"cpu_ms": statistics.median(spent) * 1e3, "lost": lost}

    async def concurrent(self, *, model: str, sessions: int, each: int) -> dict[str, Any]:
        """Run many sessions at once, each with one question after the other."""
        gc.collect()

        async def talk(session: str) -> int:
            return sum([not await self._ask(session, model, Length()) for _ in range(each)])

        opened = await self._open(sessions)
        wall, cpu = perf_counter(), process_time()
        lost = sum(await asyncio.gather(*map(talk, opened)))
        cpu, wall = process_time() - cpu, perf_counter() - wall
        runs = sessions * each
        return {"per_second": (runs - lost) / wall, "cpu_ms": cpu / runs * 1e3, "lost": lost}

    async def latency(self, *, model: str, count: int) -> dict[str, Any]:
        late: list[int] = []
        lost = 0
        for _ in range(count):
            hear = Stamps()
            lost += not await self._ask(self._fresh(), model, hear)
            late += hear.late
        return {**_spread(late), "lost": lost}

    async def stream(self, *, answers: int, chunks: int, ramp: float) -> dict[str, Any]:
        """Stream many answers at once; they start one after the other over `ramp` seconds.

        Delay is measured from when all have started until the first one ends.
        """
        gc.collect()
        model = f"stream50-{chunks}"
        hears = [Stamps() for _ in range(answers)]

        async def listen(number: int) -> bool:
            await asyncio.sleep(ramp * number / answers)
            return await self._ask(sessions[number], model, hears[number])

        sessions = await self._open(answers)
        wall, cpu = perf_counter(), process_time()
        whole = await asyncio.gather(*(listen(n) for n in range(answers)))
        cpu, wall = process_time() - cpu, perf_counter() - wall
        begun = max((h.heard[0] for h in hears if h.heard), default=0)
        over = min((h.heard[-1] for h in hears if h.heard), default=0)
        late = [
            late
            for h in hears
            for heard, late in zip(h.heard, h.late, strict=True)
            if begun <= heard <= over
        ]
        rates = sorted(
            (len(h.heard) - 1) / (h.heard[-1] - h.heard[0]) * 1e9 for h in hears if len(h.heard) > 1
        )
        together = sum(1 for h in hears for heard in h.heard if begun <= heard <= over)
        return {
            **_spread(late),
            "lost": whole.count(False),
            "slowest": rates[0] if rates else 0.0,
            "median": rates[len(rates) // 2] if rates else 0.0,
            "together_per_second": together / max(1, over - begun) * 1e9,
            "core_percent": cpu / wall * 100,
        }

    async def fill(self, *, session: str, messages: int) -> dict[str, Any]:
        await self._contestant.fill(session, messages)
        return {}

    async def idle(self, *, model: str, warm_up: int, sessions: int) -> dict[str, Any]:
        """Memory that each of many sessions uses after one question."""
        for session in await self._open(warm_up):
            await self._ask(session, model, Length())
        before, lost = _resident(), 0
        for session in await self._open(sessions):
            lost += not await self._ask(session, model, Length())
        return {"bytes": (_resident() - before) / sessions, "lost": lost}

    async def pin(self, *, cores: list[int]) -> dict[str, Any]:
        """Pin all threads of this process to these cores."""
        for thread in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(thread), cores)
        return {}


def _spread(late: list[int]) -> dict[str, Any]:
    late.sort()
    if not late:
        return {"p50_ms": None, "p99_ms": None}
    return {
        "p50_ms": late[len(late) // 2] / 1e6,
        "p99_ms": late[min(len(late) - 1, len(late) * 99 // 100)] / 1e6,
    }


def _resident() -> int:
    """Resident memory in bytes, after garbage collection."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * resource.getpagesize()


# -- main ------------------------------------------------------------------------------------


async def serve(name: str, base_url: str, folder: Path) -> None:
    contestant = importlib.import_module(MODULES[name]).Contestant()
    await contestant.start(base_url, folder)
    orders = Orders(contestant)
    tell({"ready": name})
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        what = getattr(orders, order.pop("do"))
        try:
            tell(await what(**order))
        except Exception as error:  # noqa: BLE001 - reported to the caller
            traceback.print_exc()
            tell({"failed": f"{type(error).__name__}: {error}"})
    await contestant.stop()


def tell(reply: dict[str, Any]) -> None:
    _OUT.write(json.dumps(reply) + "\n")
    _OUT.flush()


# Only replies go to stdout; everything else that is printed goes to stderr.
_OUT = os.fdopen(os.dup(1), "w", encoding="utf-8")

if __name__ == "__main__":
    os.dup2(2, 1)
    # 500 concurrent answers need 500 connections.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 16_384)), hard))
    asyncio.run(serve(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
