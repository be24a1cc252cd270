"""An overview of the code: the most important files with the definitions that others use.

It fits a token budget, estimated at four characters per token: tools do not know the model's
tokenizer.
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

Edges: TypeAlias = Sequence[Sequence[tuple[int, float]]]  # for each file: (target, weight)


def page_rank(edges: Edges, personalization: Sequence[float]) -> list[float]:
    """PageRank: how often a random reader who follows uses visits each file.

    `personalization` weighs the files where readers start and to which they return.
    """
    count = len(edges)
    total_weight = sum(personalization) or 1.0
    start = (
        [value / total_weight for value in personalization]
        if any(personalization)
        else [1.0 / count] * count
    )
    totals = [sum(weight for _, weight in out) for out in edges]
    ranks = start
    for _ in range(ITERATIONS):
        dangling = sum(r for r, total in zip(ranks, totals, strict=True) if not total)
        # The rank of files without edges goes back to the start files.
        share = 1 - DAMPING + DAMPING * dangling
        next_ranks = [share * value for value in start]
        for out, rank, total in zip(edges, ranks, totals, strict=True):
            if total:
                rank_per_weight = DAMPING * rank / total
                for target, weight in out:
                    next_ranks[target] += rank_per_weight * weight
        ranks = next_ranks
    return ranks


CHARS_PER_TOKEN: Final = 4  # estimate
MAX_SYMBOLS: Final = 8  # per file
MAX_FOCUS_HITS: Final = 20  # search hits for the words of a focus
MAX_SIGNATURE_CHARS: Final = 100
TEST_WEIGHT: Final = 0.2  # of a test file
MEMBER_WEIGHT: Final = 0.2  # of a use of a method: its name may be another's

_SHOWN_KINDS: Final = frozenset(
    {"class", "interface", "struct", "trait", "enum", "type", "function", "method", "macro"}
)


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    text: str
    weight: float


class RepoMap:
    """Renders overviews of one index. The graph is cached until the index changes."""

    def __init__(self) -> None:
        self._cached_graph: tuple[int, FileGraph] | None = None

    def render(self, db: sqlite3.Connection, *, tokens: int, focus: str) -> str:
        """Render the overview within a token budget, ranked by a focus if there is one."""
        graph = self._load_graph(db)
        if not graph.paths:
            return ""
        remaining = tokens * CHARS_PER_TOKEN
        blocks: list[str] = []
        for position in _rank_files(db, graph, focus):
            block = _fit_lines(_format_file(db, graph, position), remaining)
            if not block:
                break
            blocks.append(block)
            remaining -= len(block) + 1
        return "\n".join(blocks)

    def _load_graph(self, db: sqlite3.Connection) -> FileGraph:
        revision = get_revision(db)
        cached = self._cached_graph
        if cached is None or cached[0] != revision:
            cached = self._cached_graph = (revision, build_graph(db))
        return cached[1]


def _rank_files(db: sqlite3.Connection, graph: FileGraph, focus: str) -> Iterator[int]:
    """Yield file positions: those that match the focus, then the most connected."""
    focus_scores = _focus_scores(db, graph, focus)
    start = [focus_scores.get(position, 0.0) for position in range(len(graph.paths))]
    ranks = page_rank(graph.edges, start)
    for position, path in enumerate(graph.paths):
        ranks[position] += focus_scores.get(position, 0.0)
        if is_test(path) and not focus_scores:
            ranks[position] *= TEST_WEIGHT
    yield from nlargest(
        len(ranks), range(len(ranks)), key=lambda position: (ranks[position], -position)
    )


def _focus_scores(db: sqlite3.Connection, graph: FileGraph, focus: str) -> dict[int, float]:
    """Score how well files match the focus, by path and by search."""
    words = focus.split()
    scores: dict[int, float] = {}
    for position, path in enumerate(graph.paths):
        match_count = sum(
            word.strip("/").lower() in path.lower() for word in words if len(word) > 2
        )
        if match_count:
            scores[position] = match_count / len(words)
    positions = {path: position for position, path in enumerate(graph.paths)}
    for hit in search(db, focus, MAX_FOCUS_HITS) if words else ():
        if hit.path in positions:
            scores[positions[hit.path]] = scores.get(positions[hit.path], 0.0) + hit.score
    return scores


def _format_file(db: sqlite3.Connection, graph: FileGraph, position: int) -> list[str]:
    """Return a file's path and its most used definitions, in line order."""
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
    """Join as many lines as fit; empty if not even the path fits."""
    fitting: list[str] = []
    for line in lines:
        max_chars -= len(line) + 1
        if max_chars < 0:
            break
        fitting.append(line)
    return "\n".join(fitting)
