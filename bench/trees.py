"""Ticks per second of the tree runtime, compared with py_trees and hand-written closures.

    python bench/trees.py [--rounds 9] [--json FILE]

Every shape is measured for all contestants, which alternate over several rounds, so that load on
the machine affects all of them; the best round of each counts, in CPU time. Closures are the lower
bound: the same control flow in plain Python functions, without state, blackboard scopes or halting.
A running leaf is a child of a parallel: a task in Dodona, which a tick does not call again before
it ends; a behaviour that returns RUNNING in py_trees; a function that does so in closures.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time

import py_trees

from dodona.trees import Blackboard, Options, Registry, Run, Status, Trace, Tree, load
from dodona.trees.nodes import KINDS

SUCCESS, RUNNING = Status.SUCCESS, Status.RUNNING
ROOT = Path(__file__).resolve().parent.parent
# Not a way to use Dodona: a leaf that is not a task and returns RUNNING is called on every tick.
# Shown for comparison, and exempt from the ratios.
POLLED = "(10 polled, re-ticked)"
KEYS = [f"key_{n}" for n in range(10)]

Tick = Callable[[], object]


# -- Dodona ----------------------------------------------------------------------------------


def our_registry(gate: asyncio.Event) -> Registry:
    registry = Registry(KINDS)

    @registry.leaf("ok")
    def ok(bb: Blackboard) -> Status:
        return SUCCESS

    @registry.leaf("running", effect="none")
    async def running(bb: Blackboard) -> None:
        await gate.wait()

    @registry.leaf("polled")
    def polled(bb: Blackboard) -> Status:
        return RUNNING

    def writer(key: str) -> None:
        @registry.leaf(f"write.{key}", reads=(key,), writes=(key,))
        def write(bb: Blackboard) -> Status:
            bb[key] = 1
            return SUCCESS if bb[key] == 1 else Status.FAILURE

    for key in KEYS:
        writer(key)
    return registry


def repeat(text: str, count: int) -> str:
    return " ".join([text] * count)


def nested(width: int, depth: int) -> str:
    if depth == 0:
        return "(action ok)"
    return f"(sequence {repeat(nested(width, depth - 1), width)})"


def our_trees(gate: asyncio.Event) -> dict[str, Tree]:
    registry = our_registry(gate)
    schema = " ".join(f":{key} 0" for key in KEYS)
    writes = " ".join(f'(action :fn "write.{key}")' for key in KEYS)
    bodies = {
        "sequence of 10": f"(sequence {repeat('(action ok)', 10)})",
        "10 running, re-ticked": f"(parallel {repeat('(action running)', 10)})",
        "tree of 1,000": nested(10, 3),
        "parallel of 50": f"(parallel {repeat('(action ok)', 50)})",
        "10 blackboard writes+reads": f"(sequence {writes})",
        POLLED: f"(parallel {repeat('(action polled)', 10)})",
    }
    return {
        name: load(f'(tree "bench" :blackboard-schema {{{schema}}} {body})', registry=registry)
        for name, body in bodies.items()
    }


# -- py_trees --------------------------------------------------------------------------------


class Leaf(py_trees.behaviour.Behaviour):
    """A behaviour that always returns the same status."""

    def __init__(self, name: str, status: py_trees.common.Status) -> None:
        super().__init__(name)
        self.said = status

    def update(self) -> py_trees.common.Status:
        return self.said


class Writer(py_trees.behaviour.Behaviour):
    """A behaviour that writes a key and reads it back."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key
        self.board = self.attach_blackboard_client(name=key)
        self.board.register_key(key=key, access=py_trees.common.Access.WRITE)

    def update(self) -> py_trees.common.Status:
        self.board.set(self.key, 1)
        found = self.board.get(self.key)
        return py_trees.common.Status.SUCCESS if found == 1 else py_trees.common.Status.FAILURE


def their_trees() -> dict[str, py_trees.behaviour.Behaviour]:
    ok, busy = py_trees.common.Status.SUCCESS, py_trees.common.Status.RUNNING

    def sequence(children: list[py_trees.behaviour.Behaviour]) -> py_trees.behaviour.Behaviour:
        return py_trees.composites.Sequence("sequence", memory=True, children=children)

    def deep(depth: int) -> py_trees.behaviour.Behaviour:
        return Leaf("ok", ok) if depth == 0 else sequence([deep(depth - 1) for _ in range(10)])

    def parallel(children: list[py_trees.behaviour.Behaviour]) -> py_trees.behaviour.Behaviour:
        everything = py_trees.common.ParallelPolicy.SuccessOnAll(synchronise=False)
        return py_trees.composites.Parallel("parallel", everything, children=children)

    return {
        "sequence of 10": sequence([Leaf("ok", ok) for _ in range(10)]),
        "10 running, re-ticked": parallel([Leaf("busy", busy) for _ in range(10)]),
        "tree of 1,000": deep(3),
        "parallel of 50": parallel([Leaf("ok", ok) for _ in range(50)]),
        "10 blackboard writes+reads": sequence([Writer(key) for key in KEYS]),
        POLLED: parallel([Leaf("busy", busy) for _ in range(10)]),
    }


# -- closures --------------------------------------------------------------------------------


def closure_trees() -> dict[str, Tick]:
    def leaf(status: Status) -> Tick:
        return lambda: status

    def sequence(children: list[Tick]) -> Tick:
        def tick() -> object:
            for child in children:
                status = child()
                if status is not SUCCESS:
                    return status
            return SUCCESS

        return tick

    def parallel(children: list[Tick]) -> Tick:
        def tick() -> object:
            succeeded = running = 0
            for child in children:
                status = child()
                if status is SUCCESS:
                    succeeded += 1
                elif status is RUNNING:
                    running += 1
            if running:
                return RUNNING
            return SUCCESS if succeeded == len(children) else Status.FAILURE

        return tick

    board: dict[str, int] = {}

    def writer(key: str) -> Tick:
        def tick() -> object:
            board[key] = 1
            return SUCCESS if board[key] == 1 else Status.FAILURE

        return tick

    def deep(depth: int) -> Tick:
        return leaf(SUCCESS) if depth == 0 else sequence([deep(depth - 1) for _ in range(10)])

    return {
        "sequence of 10": sequence([leaf(SUCCESS) for _ in range(10)]),
        "10 running, re-ticked": parallel([leaf(RUNNING) for _ in range(10)]),
        "tree of 1,000": deep(3),
        "parallel of 50": parallel([leaf(SUCCESS) for _ in range(50)]),
        "10 blackboard writes+reads": sequence([writer(key) for key in KEYS]),
        POLLED: parallel([leaf(RUNNING) for _ in range(10)]),
    }


# -- measuring -------------------------------------------------------------------------------


def rate(tick: Tick, seconds: float = 0.04) -> float:
    """Ticks per second, measured over about this time."""
    count = 1
    while True:
        begun = process_time()
        for _ in range(count):
            tick()
        took = process_time() - begun
        if took >= seconds / 4:
            return count / took
        count = max(count * 2, int(count * seconds / max(took, 1e-9) / 2))


async def measure(rounds: int) -> list[dict[str, object]]:
    gate = asyncio.Event()  # never set, so running leaves keep running
    ours, theirs, limit = our_trees(gate), their_trees(), closure_trees()
    rows: list[dict[str, object]] = []
    for shape, tree in ours.items():
        contenders: dict[str, Tick] = {
            "dodona": Run(tree).tick,
            "dodona, traced": Run(tree, None, Options(trace=Trace())).tick,
            "py_trees": theirs[shape].tick_once,
            "closures": limit[shape],
        }
        for tick in contenders.values():
            tick()
        await asyncio.sleep(0)  # give tasks a chance to start
        best = dict.fromkeys(contenders, 0.0)
        for _ in range(rounds):
            for name, tick in contenders.items():
                best[name] = max(best[name], rate(tick))
        figures = {**best, **ratios(best)}
        rows.append({"shape": shape, **{name: round(n, 2) for name, n in figures.items()}})
    return rows


def ratios(best: dict[str, float]) -> dict[str, float]:
    return {
        "x py_trees": best["dodona"] / best["py_trees"],
        "closures / ours": best["closures"] / best["dodona"],
        "cost of tracing": best["dodona"] / best["dodona, traced"],
    }


def load_seed() -> float:
    """Milliseconds to read, check and compile the seed program; best of 20."""
    sys.path.insert(0, str(ROOT / "examples" / "oracle"))
    import leaves  # noqa: F401, PLC0415 - registers what the program names

    path = ROOT / "examples" / "oracle" / "seed.lisp"
    best = float("inf")
    for _ in range(20):
        begun = perf_counter()
        load(path)
        best = min(best, perf_counter() - begun)
    return best * 1_000


async def memory_per_run(runs: int = 1_000) -> float:
    """Kilobytes of a run of a 60-node tree that waits for a leaf, including tasks."""
    gate = asyncio.Event()
    registry = our_registry(gate)
    part = f"(sequence {repeat('(action ok)', 9)})"
    body = f"(sequence {repeat(part, 5)} (sequence {repeat('(action ok)', 7)} (running)))"
    tree = load(f'(tree "sixty" :blackboard-schema {{:a 0 :b "" :c []}} {body})', registry=registry)
    nodes = len(tree.program().places)
    assert nodes == 60, nodes
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tasks = [asyncio.create_task(Run(tree).execute()) for _ in range(runs)]
    for _ in range(5):
        await asyncio.sleep(0)
    gc.collect()
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    gate.set()
    outcomes = await asyncio.gather(*tasks)
    assert all(outcome.succeeded for outcome in outcomes)
    return used / runs / 1_024


def table(rows: list[dict[str, object]]) -> str:
    names = list(rows[0])
    lines = [list(names)]
    for row in rows:
        cells = [str(row["shape"])]
        for name in names[1:]:
            value = float(str(row[name]))
            cells.append(f"{value:,.0f}" if value >= 1_000 else f"{value:,.1f}")
        lines.append(cells)
    widths = [max(len(line[k]) for line in lines) for k in range(len(names))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if k == 0 else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def main() -> int:
    options = argparse.ArgumentParser(description="Ticks per second of the tree runtime.")
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--json", type=Path, help="also write the figures to this file")
    given = options.parse_args()
    print("Ticks per second, the best of", given.rounds, "interleaved rounds:\n", flush=True)
    rows = asyncio.run(measure(given.rounds))
    print(table(rows))
    held = [row for row in rows if row["shape"] != POLLED]
    seed, memory = load_seed(), asyncio.run(memory_per_run())
    print(f"\nLoading the seed program: {seed:.1f} ms (limit 20)")
    print(f"1,000 concurrent runs of a 60-node tree: {memory:.1f} KB each (limit 20)")
    checks = {
        "at least 25 times py_trees": all(float(str(row["x py_trees"])) >= 25 for row in held),
        "within 4 times of closures": all(float(str(row["closures / ours"])) <= 4 for row in held),
        "tracing costs at most 3 times": all(
            float(str(row["cost of tracing"])) <= 3 for row in held
        ),
        "the seed's program loads within 20 ms": seed < 20,
        "a run takes less than 20 KB": memory < 20,
    }
    print()
    for check, met in checks.items():
        print(f"  {'met   ' if met else 'MISSED'}  {check}")
    figures = {
        "shapes": rows,
        "load_seed_ms": round(seed, 2),
        "kb_per_run": round(memory, 2),
        "met": checks,
    }
    print("\n" + json.dumps(figures))
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0 if all(checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
