"""Run a tree from the command line: plain, traced, live, or in the debugger."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from dodona.cli.arguments import flag
from dodona.cli.terminal.output import print_json, print_note, print_text
from dodona.cli.terminal.tree_debug import debug
from dodona.core.errors import did_you_mean
from dodona.core.events import Event
from dodona.trees import Debugger, Options, Outcome, Run, Trace, Tree, Watchdog
from dodona.trees.runtime.trace import Visit
from dodona.trees.tooling import show
from dodona.trees.tooling.keyvalue import FileKeyValue

LIVE_INTERVAL = 0.1
MAX_WIDTH = 100


@dataclass(frozen=True, slots=True)
class TreeRunFlags:
    """How to observe and limit a tree run."""

    trace: Annotated[bool, flag("Show the ticks after the run.")] = False
    live: Annotated[bool, flag("Draw the tree while it runs.")] = False
    step: Annotated[bool, flag("Pause before every node.")] = False
    breakpoints: Annotated[
        tuple[str, ...],
        Parameter(
            name="--break",
            negative="",
            show_default=False,
            help="Pause before this node, leaf or path.",
        ),
    ] = ()
    watchdog: Annotated[float, Parameter(help="Seconds without progress before a step fails.")] = (
        60.0
    )
    globals: Annotated[
        Path | None, Parameter(help="JSON file that stores global keys between runs.")
    ] = None


def run_tree(tree: Tree, values: Mapping[str, Any], flags: TreeRunFlags, *, as_json: bool) -> int:
    """Run a tree, print its outcome and return the exit code."""
    debugger = None
    if flags.step or flags.breakpoints:
        debugger = Debugger(flags.breakpoints, step=flags.step)
    traced = flags.trace or flags.live or debugger is not None
    trace = Trace() if traced else None
    options = Options(
        globals=FileKeyValue(flags.globals) if flags.globals else None,
        emit=None if as_json else _print_event,
        output=None if as_json else _ChunkPrinter(),
        watchdog=Watchdog(flags.watchdog),
        trace=trace,
        debugger=debugger,
    )
    _warn_unknown_keys(tree, values)
    run = Run(tree, values, options)
    outcome = asyncio.run(_run_to_end(run, live=flags.live and not as_json, as_json=as_json))
    if as_json:
        print_json(
            {
                **_outcome_json(outcome),
                "trace": _ticks_json(trace) if trace and flags.trace else None,
            }
        )
        return 0 if outcome.succeeded else 1
    if trace is not None and flags.trace:
        _print_trace(trace, last=20)
    _print_outcome(tree, outcome)
    return 0 if outcome.succeeded else 1


def trace_tree(tree: Tree, values: Mapping[str, Any], *, last: int, as_json: bool) -> int:
    """Run a tree, print its ticks and timings and return the exit code."""
    trace = Trace()
    run = Run(tree, values, Options(trace=trace, watchdog=Watchdog(60.0)))
    outcome = asyncio.run(_run_to_end(run))
    if as_json:
        print_json(
            {
                **_outcome_json(outcome),
                "trace": _ticks_json(trace)[-last:],
                "timings": _timings_json(trace),
            }
        )
    else:
        _print_trace(trace, last=last)
        _print_timings(trace)
        _print_outcome(tree, outcome)
    return 0 if outcome.succeeded else 1


async def _run_to_end(run: Run, *, live: bool = False, as_json: bool = False) -> Outcome:
    """Run a tree to its end. Ctrl-C or SIGTERM cancels it, and its :finally still runs."""
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        loop.remove_signal_handler(number)  # a second signal ends the process
        run.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    task = asyncio.create_task(run.execute())
    if run.options.debugger is not None:
        # With --json, standard output holds only the JSON document.
        await debug(run, run.options.debugger, task, print_note if as_json else print_text)
    elif live:
        await _draw_live(run, task)
    return await task


async def _draw_live(run: Run, task: asyncio.Task[Outcome]) -> None:
    from rich.console import Console  # noqa: PLC0415 - only a live view needs it
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    trace = run.options.trace
    assert trace is not None
    with Live(console=Console(), auto_refresh=False, vertical_overflow="visible") as view:
        while True:
            view.update(Text(show.as_ascii(run.tree, trace.statuses())), refresh=True)
            if task.done():
                return
            await asyncio.wait([task], timeout=LIVE_INTERVAL)


# -- output ----------------------------------------------------------------------------------


class _ChunkPrinter:
    """Prints chunks as they arrive, until the reader closes the pipe."""

    def __init__(self) -> None:
        self._is_closed = False

    def __call__(self, chunk: Any) -> None:
        if self._is_closed:
            return
        if not isinstance(chunk, str):
            chunk = json.dumps(msgspec.to_builtins(chunk, enc_hook=str), ensure_ascii=False)
        try:
            print_text(chunk)
        except BrokenPipeError:
            self._is_closed = True  # the run continues without output


def _print_event(event: Event) -> None:
    nodes = ", ".join(event.payload.get("nodes", ())) or event.payload.get("node", "")
    print_note(f"{event.severity.value}: {event.type} {nodes}")


def _warn_unknown_keys(tree: Tree, values: Mapping[str, Any]) -> None:
    for key in values:
        near = did_you_mean(key, tree.run_schema.keys) if key not in tree.run_schema.keys else ""
        if near:
            print_note(f"warning: key ':{key}' is not in any schema. {near}")


def _outcome_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "status": outcome.status.value,
        "ended": outcome.end_reason,
        "ticks": outcome.ticks,
        "error": outcome.error,
        "blackboard": {k: v for k, v in outcome.blackboard.items() if not k.startswith("_")},
    }


def _print_outcome(tree: Tree, outcome: Outcome) -> None:
    print_text()
    for key, value in sorted(outcome.blackboard.items()):
        if not key.startswith("_") and value not in (None, "", [], {}):
            print_text(f"  :{key} {_format_value(value)}")
    ended = "" if outcome.end_reason == outcome.status.value else f" ({outcome.end_reason})"
    ticks = f"{outcome.ticks} tick{'s' if outcome.ticks != 1 else ''}"
    print_text(f"{show.STATUS_MARKS[outcome.status]} {tree.name}: {outcome.status}{ended}, {ticks}")
    if outcome.error is not None and not outcome.succeeded:
        print_note(f"{outcome.error['node']}: {outcome.error['message']}")


def _format_value(value: Any) -> str:
    """Format a value as JSON on one line, truncated to fit."""
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= MAX_WIDTH else f"{text[:MAX_WIDTH]}…"


def _print_trace(trace: Trace, *, last: int) -> None:
    ticks = trace.ticks()
    if len(ticks) > last:
        print_text(f"… {len(ticks) - last} earlier ticks")
    for tick in ticks[-last:]:
        print_text(f"tick {tick.number} at {tick.at * 1_000:.1f} ms")
        for visit in _parents_first(tick.visits):
            indent = "  " * (visit.place.depth + 1)
            error = f"  {visit.error['message']}" if visit.error else ""
            mark = show.STATUS_MARKS[visit.status]
            print_text(
                f"{indent}{mark} {visit.place.node.label}  {visit.seconds * 1e6:.0f} µs{error}"
            )


def _parents_first(visits: Sequence[Visit]) -> list[Visit]:
    """Reorder visits so that a parent precedes its children; the trace has it after them."""
    blocks: list[list[Visit]] = []
    for visit in visits:
        below: list[list[Visit]] = []
        while blocks and blocks[-1][0].place.depth > visit.place.depth:
            below.append(blocks.pop())
        blocks.append([visit, *(inner for block in reversed(below) for inner in block)])
    return [visit for block in blocks for visit in block]


def _print_timings(trace: Trace) -> None:
    rows = sorted(trace.timings(), key=lambda timing: -timing.elapsed_seconds)[:15]
    # The end of a path is more specific than its start.
    paths = [path if len(path) <= 60 else f"…{path[-59:]}" for path in (r.place.path for r in rows)]
    width = max(map(len, paths), default=4)
    print_text(f"\n{'node'.ljust(width)}  visits    elapsed       busy")
    for row, path in zip(rows, paths, strict=True):
        elapsed, busy = _format_duration(row.elapsed_seconds), _format_duration(row.busy_seconds)
        print_text(f"{path.ljust(width)}  {row.visits:6}  {elapsed}  {busy}")


def _format_duration(seconds: float) -> str:
    if seconds < 0.001:
        return f"{seconds * 1e6:6.0f} µs"
    return f"{seconds * 1_000:6.1f} ms" if seconds < 10 else f"{seconds:7.1f} s"


def _ticks_json(trace: Trace) -> list[dict[str, Any]]:
    return [
        {
            "tick": tick.number,
            "at": round(tick.at, 6),
            "visits": [
                {
                    "node": visit.place.path,
                    "status": visit.status.value,
                    "seconds": round(visit.seconds, 9),
                    "error": visit.error,
                }
                for visit in tick.visits
            ],
        }
        for tick in trace.ticks()
    ]


def _timings_json(trace: Trace) -> list[dict[str, Any]]:
    return [
        {
            "node": timing.place.path,
            "visits": timing.visits,
            "elapsed": round(timing.elapsed_seconds, 9),
            "busy": round(timing.busy_seconds, 9),
            "last": timing.last_status.value if timing.last_status else None,
        }
        for timing in trace.timings()
    ]
