"""Figures of a comparison: collected over the rounds, shown as a table, checked against targets."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

CHEAPER = 12.0  # times the CPU of the cheapest peer
NEAR = 3.0  # times the lower bound
FLAT = 1.3
PER_SECOND = 300
PACE = 49.0  # chunks per second of each answer, of the 50 sent
ADDED_MS = 0.5
HELP_MS = 250.0
IDLE_BYTES = 2048

KINDS = {"none": "0 tools", "rounds3": "3 tool rounds", "parallel5": "5 parallel tools"}


@dataclass(frozen=True, slots=True)
class Target:
    """A target; `met` is None if it could not be measured."""

    what: str
    met: bool | None
    found: str

    @property
    def verdict(self) -> str:
        return {True: "met", False: "MISSED", None: "not measured"}[self.met]


@dataclass(slots=True)
class Figures:
    """One value per round, by figure and contestant."""

    rounds: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def add(self, figure: str, who: str, value: float | None) -> None:
        if value is not None:
            self.rounds.setdefault(figure, {}).setdefault(who, []).append(value)

    def add_lost(self, who: str, runs: int) -> None:
        self.lost[who] = self.lost.get(who, 0) + runs

    def get(self, figure: str, who: str) -> float | None:
        """The best of all rounds; the median for latencies; the total for losses."""
        values = self.rounds.get(figure, {}).get(who)
        if not values:
            return None
        if "lost" in figure:
            return sum(values)
        if "late" in figure:
            return statistics.median(values)
        return max(values) if "/s" in figure else min(values)

    def as_json(self) -> dict[str, Any]:
        found = {
            figure: {who: _rounded(self.get(figure, who)) for who in by}
            for figure, by in self.rounds.items()
        }
        return {"figures": found, "rounds": self.rounds, "lost": self.lost, "faults": self.faults}


def table(figures: Figures, who: Sequence[str]) -> str:
    lines = [["", *who]]
    for figure in figures.rounds:
        values = [figures.get(figure, name) for name in who]
        lines.append([figure, *("–" if v is None else _shown(v) for v in values)])
    lines.append(["runs lost, in all", *(str(figures.lost.get(name, 0)) for name in who)])
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if k == 0 else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def targets(figures: Figures, peers: Sequence[str]) -> list[Target]:
    found: list[Target] = []
    for kind, words in KINDS.items():
        found += _cpu_targets(figures, f"CPU ms, {kind}", words, peers)
    found += [
        *(_at_least(figures, f"64 sessions, {k}: runs/s", PER_SECOND) for k in ("none", "rounds3")),
        _at_least(figures, "300 answers: slowest, chunks/s", PACE),
        *(_flat(figures, size) for size in (10_000, 100_000)),
        *(_added(figures, how) for how in ("burst", "paced")),
        _at_most(figures, "dodona --help, ms", HELP_MS),
        _at_most(figures, "idle session, bytes", IDLE_BYTES),
        _none_lost(figures),
    ]
    return found


def _cpu_targets(figures: Figures, figure: str, words: str, peers: Sequence[str]) -> list[Target]:
    ours, limit = figures.get(figure, "dodona"), figures.get(figure, "limit")
    theirs = [v for name in peers if (v := figures.get(figure, name)) is not None]
    cheaper = min(theirs) / ours if ours and theirs else None
    near = ours / limit if ours and limit else None
    return [
        Target(
            f"{words}: at least {CHEAPER:g} times cheaper than the cheapest peer",
            None if cheaper is None else cheaper >= CHEAPER,
            "" if cheaper is None else f"{cheaper:.1f} times",
        ),
        Target(
            f"{words}: within {NEAR:g} times of the limit",
            None if near is None else near <= NEAR,
            "" if near is None else f"{near:.2f} times",
        ),
    ]


def _at_least(figures: Figures, figure: str, least: float) -> Target:
    value = figures.get(figure, "dodona")
    met = None if value is None else value >= least
    return Target(f"{figure}: at least {least:g}", met, "" if value is None else _shown(value))


def _at_most(figures: Figures, figure: str, most: float) -> Target:
    value = figures.get(figure, "dodona")
    met = None if value is None else value < most
    return Target(f"{figure}: less than {most:g}", met, "" if value is None else _shown(value))


def _flat(figures: Figures, size: int) -> Target:
    small = figures.get("CPU ms after 10 messages", "dodona")
    large = figures.get(f"CPU ms after {size:,} messages", "dodona")
    ratio = large / small if small and large else None
    return Target(
        f"a run after {size:,} messages within {FLAT} times of one after 10",
        None if ratio is None else ratio <= FLAT,
        "" if ratio is None else f"{ratio:.2f} times",
    )


def _added(figures: Figures, how: str) -> Target:
    """Latency that Dodona adds to a chunk, compared with the lower bound."""
    ours, limit = (figures.get(f"late p50 ms, {how}", who) for who in ("dodona", "limit"))
    added = None if ours is None or limit is None else ours - limit
    return Target(
        f"{how}: less than {ADDED_MS} ms added to a chunk's way (p50)",
        None if added is None else added < ADDED_MS,
        "" if added is None else f"{added:.2f} ms",
    )


def _none_lost(figures: Figures) -> Target:
    lost = figures.lost.get("dodona")
    return Target(
        "no run is lost", None if lost is None else lost == 0, "" if not lost else str(lost)
    )


def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
