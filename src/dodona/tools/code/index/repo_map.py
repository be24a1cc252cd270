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
from dodona.tools.code.index.graph import FileGraph, build_graph, without_locals
from dodona.tools.code.index.index_file import hash_name
from dodona.tools.code.index.indexing import get_revision
from dodona.tools.code.index.search import search

ITERATIONS: Final = 12
DAMPING: Final = 0.85

Edges: TypeAlias = Sequence[Sequence[tuple[int, float]]]  # of each file: to which, how strongly


def page_rank(edges: Edges, personalization: Sequence[float]) -> list[float]:
    """PageRank: how often a reader is at each file who follows what files use.

    `start` is where a reader begins, and goes back to now and then: it makes the rank personal.
    """
    count = len(edges)
    whole = sum(personalization) or 1.0
    home = (
        [each / whole for each in personalization]
        if any(personalization)
        else [1.0 / count] * count
    )
    totals = [sum(weight for _, weight in out) for out in edges]
    ranks = home
    for _ in range(ITERATIONS):
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


CHARS_PER_TOKEN: Final = 4  # that a token is taken for
MAX_SYMBOLS: Final = 8  # of a file
MAX_FOCUS_HITS: Final = 20  # files that words of a focus lead to
MAX_SIGNATURE_CHARS: Final = 100
TEST_WEIGHT: Final = 0.2  # what a test is worth
MEMBER_WEIGHT: Final = 0.2  # what a user of a method is worth: others may have methods of that name

_SHOWN_KINDS: Final = frozenset(
    {"class", "interface", "struct", "trait", "enum", "type", "function", "method", "macro"}
)


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    text: str
    weight: float


class RepoMap:
    """Draws maps of one index. What is connected is kept until the index changes."""

    def __init__(self) -> None:
        self._cached_graph: tuple[int, FileGraph] | None = None

    def render(self, db: sqlite3.Connection, *, tokens: int, focus: str) -> str:
        graph = self._load_graph(db)
        if not graph.paths:
            return ""
        left = tokens * CHARS_PER_TOKEN
        blocks: list[str] = []
        for place in _rank_files(db, graph, focus):
            block = _fit_lines(_format_file(db, graph, place), left)
            if not block:
                break
            blocks.append(block)
            left -= len(block) + 1
        return "\n".join(blocks)

    def _load_graph(self, db: sqlite3.Connection) -> FileGraph:
        now = get_revision(db)
        known = self._cached_graph
        if known is None or known[0] != now:
            known = self._cached_graph = (now, build_graph(db))
        return known[1]


def _rank_files(db: sqlite3.Connection, graph: FileGraph, focus: str) -> Iterator[int]:
    """Files, the most connected first; what the focus names begins."""
    near = _focus_scores(db, graph, focus)
    start = [near.get(place, 0.0) for place in range(len(graph.paths))]
    ranks = page_rank(graph.edges, start)
    for place, path in enumerate(graph.paths):
        ranks[place] += near.get(place, 0.0)
        if is_test(path) and not near:
            ranks[place] *= TEST_WEIGHT
    yield from nlargest(len(ranks), range(len(ranks)), key=lambda place: (ranks[place], -place))


def _focus_scores(db: sqlite3.Connection, graph: FileGraph, focus: str) -> dict[int, float]:
    """How near files are to the focus: by their paths, and by what is found for its words."""
    words = focus.split()
    near: dict[int, float] = {}
    for place, path in enumerate(graph.paths):
        named = sum(word.strip("/").lower() in path.lower() for word in words if len(word) > 2)
        if named:
            near[place] = named / len(words)
    places = {path: place for place, path in enumerate(graph.paths)}
    for hit in search(db, focus, MAX_FOCUS_HITS) if words else ():
        if hit.path in places:
            near[places[hit.path]] = near.get(places[hit.path], 0.0) + hit.score
    return near


def _format_file(db: sqlite3.Connection, graph: FileGraph, position: int) -> list[str]:
    """A file's path, then what it defines, in the order of lines."""
    rows = db.execute(
        "SELECT s.first, s.name, s.kind, s.signature, s.container FROM files f JOIN symbols s"
        " ON s.id >= f.symbol AND s.id < f.symbol + f.symbols WHERE f.id = ? ORDER BY s.id",
        (graph.ids[position],),
    )
    lines = [
        _Line(
            first,
            f"{'  ' * bool(container)}{signature or name}",
            weight=graph.user_counts[hash_name(name)] * (MEMBER_WEIGHT if container else 1.0),
        )
        for first, name, kind, signature, container in without_locals(rows)
        if kind in _SHOWN_KINDS and not name.startswith("__")
    ]
    best = nlargest(MAX_SYMBOLS, lines, key=lambda line: (line.weight, -line.number))
    shown = sorted(best, key=lambda line: line.number)
    return [
        graph.paths[position],
        *(f"{line.number:>6}  {_truncate(line.text)}" for line in shown),
    ]


def _truncate(text: str) -> str:
    return text if len(text) <= MAX_SIGNATURE_CHARS else text[: MAX_SIGNATURE_CHARS - 1] + "…"


def _fit_lines(lines: list[str], max_chars: int) -> str:
    """As many lines as there is room for; none when not even the path fits."""
    taken: list[str] = []
    for line in lines:
        max_chars -= len(line) + 1
        if max_chars < 0:
            break
        taken.append(line)
    return "\n".join(taken)
