"""Cost of notifications: the event bus, an inbox, and the tokens of notices.

    python bench/notify.py [--rounds 5] [--json FILE]

The bus delivers each event to ten handlers, compared with blinker and pyee, which call their
handlers synchronously and without ordering. Rounds alternate; the best of each counts. Dodona
buffers the events of a tick and delivers them afterwards, here a hundred events per tick.

An inbox receives an event of each shipped subscriber and is drained after every ten, as in one turn
of a run. A quiet event is one that matches no subscriber.

Rows are the content of batches of the shipped subscribers, as compact JSON and in our format, in
tokens of a model with a public vocabulary.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from time import process_time
from typing import Any

from blinker import Signal
from pyee.base import EventEmitter

from dodona.core.domain.notices import InjectionPoint
from dodona.core.events import Event, Severity
from dodona.models.token_counter import OfflineTokenCounter
from dodona.notify import Bus, Inbox, SubscriberRegistry
from dodona.notify.formats import format_for_model

HANDLERS = 10
EVENTS = 50_000
A_TICK = 100
HEARD = 5_000
TARGET = 50_000  # events per second
MODEL = "gpt-4o"
TYPE = "tool.call.success"

HAPPENING: tuple[tuple[str, dict[str, Any]], ...] = (
    ("tool.call.failure", {"tool": "vault_search", "call": "c1", "ms": 12, "error": "no folder"}),
    ("budget.token.warning", {"limit": "tokens", "current_value": 80, "message": "80 of 100."}),
    ("budget.token.exceeded", {"limit": "tokens", "current_value": 100, "message": "All."}),
    ("agent.loop.detected", {"pattern": "vault_search(x)"}),
    ("context.approaching_limit", {"current_value": 70, "limit_value": 100}),
    ("session.resumed", {"previous_model": "a", "model": "b"}),
    ("source.stale", {"path": "notes/oak.md"}),
    ("self.notify", {"message": "Mind the gap.", "priority": "high"}),
    ("task.checkpoint", {"message": "Half is done."}),
    ("subagent.complete", {"agent": "librarian"}),
)
BATCHES: dict[str, Callable[[int], dict[str, Any]]] = {
    "tool_failure": lambda n: {
        "tool": "vault_search", "ms": 12 + n, "error": f"there is no folder 'projects/{n}'",
    },
    "source_stale": lambda n: {"path": f"notes/projects/oak-{n}.md"},
    "subagent_done": lambda n: {"agent": f"librarian-{n}", "turns": n, "error": "out of tokens"},
}  # fmt: skip


class Counted:
    """A handler that only counts."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, _: object) -> None:
        self.count += 1


async def ours(events: Sequence[Event], handlers: Iterable[Counted]) -> None:
    bus = Bus()
    for handler in handlers:
        bus.add_handler(handler, user_id=None)
    for start in range(0, len(events), A_TICK):
        for event in events[start : start + A_TICK]:
            bus.emit(event)
        await asyncio.sleep(0)
    bus.close()


async def blinker(events: Sequence[Event], handlers: Iterable[Counted]) -> None:
    signal = Signal()
    for handler in handlers:
        signal.connect(handler)
    for event in events:
        signal.send(event)


async def pyee(events: Sequence[Event], handlers: Iterable[Counted]) -> None:
    emitter = EventEmitter()
    for handler in handlers:
        emitter.on(TYPE, handler)
    for event in events:
        emitter.emit(event.type, event)


CONTENDERS = {"dodona": ours, "blinker": blinker, "pyee": pyee}


def per_second(rounds: int) -> dict[str, float]:
    """Events per second of CPU time through ten handlers, on one core."""
    events = [Event(TYPE, "bench", payload={"user_id": "ada", "n": n}) for n in range(EVENTS)]
    best = dict.fromkeys(CONTENDERS, 0.0)
    for _ in range(rounds):
        for name, tell in CONTENDERS.items():
            handlers = [Counted() for _ in range(HANDLERS)]
            began = process_time()
            asyncio.run(tell(events, handlers))
            took = process_time() - began
            if any(handler.count != EVENTS for handler in handlers):
                raise RuntimeError(f"{name} lost events")
            best[name] = max(best[name], EVENTS / took)
    return best


def per_event(rounds: int) -> dict[str, float]:
    """Microseconds per event of an inbox: one that is delivered, and one that matches nothing."""
    subscribers = SubscriberRegistry()
    subscribers.load()
    wanted = [Event(t, "bench", Severity.WARNING, payload) for t, payload in HAPPENING]
    quiet = [Event(TYPE, "bench", payload={"tool": "vault_read"})] * len(wanted)
    best = {"heard and told": float("inf"), "heard, wanted by nobody": float("inf")}
    for _ in range(rounds):
        for name, events in zip(best, (wanted, quiet), strict=True):
            inbox = Inbox(subscribers)
            began = process_time()
            for _ in range(HEARD // len(events)):
                for event in events:
                    inbox.receive(event)
                inbox.drain(*InjectionPoint)
            best[name] = min(best[name], (process_time() - began) / HEARD * 1e6)
    return best


def tokens(sizes: Sequence[int] = (3, 10, 50)) -> list[dict[str, Any]]:
    """Tokens of the rows of a batch."""
    counter = OfflineTokenCounter()
    found: list[dict[str, Any]] = []
    for name, row in BATCHES.items():
        for size in sizes:
            rows = [row(number) for number in range(size)]
            compact = json.dumps(rows, ensure_ascii=False, separators=(",", ":"))
            before, after = (
                counter.count(text, MODEL) for text in (compact, format_for_model(rows))
            )
            found.append(
                {"subscriber": name, "events": size, "json": before, "written": after,
                 "saved": round(100 * (before - after) / before)}
            )  # fmt: skip
    return found


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, *rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--json", type=Path, help="also write the figures to this file")
    given = options.parse_args()
    bus, inbox, rows = per_second(given.rounds), per_event(given.rounds), tokens()
    heads = ("", *bus)
    print(f"{EVENTS:,} events through {HANDLERS} handlers, the best of {given.rounds} rounds:\n")
    print(table(heads, [("events/s", *(f"{value:,.0f}" for value in bus.values()))]))
    print("\nAn inbox with the shipped subscribers, CPU µs per event:\n")
    print(table(("", "µs"), [(name, f"{value:.1f}") for name, value in inbox.items()]))
    print(f"\nTokens of a batch's rows ({MODEL}):\n")
    print(
        table(
            ("subscriber", "events", "compact JSON", "written", "saved"),
            [
                (r["subscriber"], str(r["events"]), str(r["json"]), str(r["written"]),
                 f"{r['saved']} %") for r in rows
            ],
        )
    )  # fmt: skip
    met = {f"at least {TARGET:,} events a second": bus["dodona"] >= TARGET}
    print()
    for check, is_met in met.items():
        print(f"  {'met   ' if is_met else 'MISSED'}  {check}")
    figures = {"events_per_second": bus, "us_per_event": inbox, "tokens": rows, "met": met}
    print("\n" + json.dumps(figures))
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0 if all(met.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
