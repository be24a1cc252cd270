"""Notices a run in which nothing moves, and a tree to which that happens again and again."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from dodona.core.errors import BadRequest

if TYPE_CHECKING:
    from dodona.trees.language.tree import Tree

MAX_STRIKES = 3
STRIKE_WINDOW_SECONDS = 60.0


class Watchdog:
    """No progress for `seconds`: the steps that run are failed, and the tree goes on from there.

    The third time within a minute, or when there is no step to fail, the tree is stopped and the
    recovery tree answers instead.
    One watchdog may serve many runs; strikes are counted per tree.
    """

    def __init__(self, timeout_seconds: float, *, recovery: Tree | None = None) -> None:
        if timeout_seconds <= 0:
            raise BadRequest(f"a watchdog waits more than 0 seconds (got {timeout_seconds:g}).")
        self.timeout_seconds = timeout_seconds
        self.recovery = recovery
        self._strikes: dict[str, deque[float]] = {}

    def record_strike(self, tree: str, now: float) -> tuple[int, bool]:
        """Count one: how many there were within the minute, and whether that is too many."""
        times = self._strikes.setdefault(tree, deque(maxlen=MAX_STRIKES))
        times.append(now)
        recent = sum(1 for at in times if now - at < STRIKE_WINDOW_SECONDS)
        if recent >= MAX_STRIKES:
            times.clear()
        return recent, recent >= MAX_STRIKES
