"""Which files matter most: those that many others use, and that those use which matter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

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
