"""A map of the code: the files that matter most, each with what it defines that others use.

It fits a budget of tokens, counted at four characters each: tools have no vocabulary of a model.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Final, TypeAlias

from dodona.tools.code.files.folders import is_test
from dodona.tools.code.index.graph import Graph, connected, without_locals
from dodona.tools.code.index.index_file import mark_of
from dodona.tools.code.index.indexing import edition
from dodona.tools.code.index.search import search

ROUNDS: Final = 12
DAMPING: Final = 0.85

Edges: TypeAlias = Sequence[Sequence[tuple[int, float]]]  # of each file: to which, how strongly


def rank(edges: Edges, start: Sequence[float]) -> list[float]:
    """PageRank: how often a reader is at each file who follows what files use.

    `start` is where a reader begins, and goes back to now and then: it makes the rank personal.
    """
    count = len(edges)
    whole = sum(start) or 1.0
    home = [each / whole for each in start] if any(start) else [1.0 / count] * count
    totals = [sum(weight for _, weight in out) for out in edges]
    ranks = home
    for _ in range(ROUNDS):
        lost = sum(r for r, total in zip(ranks, totals, strict=True) if not total)
        # What a file without uses would pass on goes to where readers begin.
        share = 1 - DAMPING + DAMPING * lost
        fresh = [share * each for each in home]
        for out, own, total in zip(edges, ranks, totals, strict=True):
            if total:
                passed = DAMPING * own / total
                for to, weight in out:
                    fresh[to] += passed * weight
        ranks = fresh
    return ranks


CHARACTERS: Final = 4  # that a token is taken for
MOST_SYMBOLS: Final = 8  # of a file
MOST_FOCUS: Final = 20  # files that words of a focus lead to
LONGEST_SIGNATURE: Final = 100
OF_TEST: Final = 0.2  # what a test is worth
OF_INNER: Final = 0.2  # what a user of a method is worth: others may have methods of that name

_SHOWN: Final = frozenset(
    {"class", "interface", "struct", "trait", "enum", "type", "function", "method", "macro"}
)


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    text: str
    worth: float


class RepoMap:
    """Draws maps of one index. What is connected is kept until the index changes."""

    def __init__(self) -> None:
        self._known: tuple[int, Graph] | None = None

    def draw(self, db: sqlite3.Connection, *, tokens: int, focus: str) -> str:
        graph = self._graph(db)
        if not graph.paths:
            return ""
        left = tokens * CHARACTERS
        blocks: list[str] = []
        for place in _ordered(db, graph, focus):
            block = _fitting(_block(db, graph, place), left)
            if not block:
                break
            blocks.append(block)
            left -= len(block) + 1
        return "\n".join(blocks)

    def _graph(self, db: sqlite3.Connection) -> Graph:
        now = edition(db)
        known = self._known
        if known is None or known[0] != now:
            known = self._known = (now, connected(db))
        return known[1]


def _ordered(db: sqlite3.Connection, graph: Graph, focus: str) -> Iterator[int]:
    """Files, the most connected first; what the focus names begins."""
    near = _near(db, graph, focus)
    start = [near.get(place, 0.0) for place in range(len(graph.paths))]
    ranks = rank(graph.edges, start)
    for place, path in enumerate(graph.paths):
        ranks[place] += near.get(place, 0.0)
        if is_test(path) and not near:
            ranks[place] *= OF_TEST
    yield from nlargest(len(ranks), range(len(ranks)), key=lambda place: (ranks[place], -place))


def _near(db: sqlite3.Connection, graph: Graph, focus: str) -> dict[int, float]:
    """How near files are to the focus: by their paths, and by what is found for its words."""
    words = focus.split()
    near: dict[int, float] = {}
    for place, path in enumerate(graph.paths):
        named = sum(word.strip("/").lower() in path.lower() for word in words if len(word) > 2)
        if named:
            near[place] = named / len(words)
    places = {path: place for place, path in enumerate(graph.paths)}
    for hit in search(db, focus, MOST_FOCUS) if words else ():
        if hit.path in places:
            near[places[hit.path]] = near.get(places[hit.path], 0.0) + hit.score
    return near


def _block(db: sqlite3.Connection, graph: Graph, place: int) -> list[str]:
    """A file's path, then what it defines, in the order of lines."""
    rows = db.execute(
        "SELECT s.first, s.name, s.kind, s.signature, s.container FROM files f JOIN symbols s"
        " ON s.id >= f.symbol AND s.id < f.symbol + f.symbols WHERE f.id = ? ORDER BY s.id",
        (graph.ids[place],),
    )
    lines = [
        _Line(
            first,
            f"{'  ' * bool(container)}{signature or name}",
            worth=graph.users[mark_of(name)] * (OF_INNER if container else 1.0),
        )
        for first, name, kind, signature, container in without_locals(rows)
        if kind in _SHOWN and not name.startswith("__")
    ]
    best = nlargest(MOST_SYMBOLS, lines, key=lambda line: (line.worth, -line.number))
    shown = sorted(best, key=lambda line: line.number)
    return [
        graph.paths[place],
        *(f"{line.number:>6}  {_short(line.text)}" for line in shown),
    ]


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_SIGNATURE else text[: LONGEST_SIGNATURE - 1] + "…"


def _fitting(lines: list[str], room: int) -> str:
    """As many lines as there is room for; none when not even the path fits."""
    taken: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        taken.append(line)
    return "\n".join(taken)
