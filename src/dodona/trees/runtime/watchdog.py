"""Detects runs that make no progress, and trees to which this happens repeatedly."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from dodona.core.errors import BadRequest

if TYPE_CHECKING:
    from dodona.trees.language.tree import Tree

MAX_STRIKES = 3
STRIKE_WINDOW_SECONDS = 60.0


class Watchdog:
    """After `timeout_seconds` without progress, fails the running steps; the tree continues.

    The third time within a minute, or if no step is running, the tree is stopped and the
    recovery tree runs instead. A watchdog can serve many runs; strikes are counted per tree.
    """

    def __init__(self, timeout_seconds: float, *, recovery: Tree | None = None) -> None:
        if timeout_seconds <= 0:
            raise BadRequest(
                f"the watchdog timeout must be more than 0 seconds (got {timeout_seconds:g})."
            )
        self.timeout_seconds = timeout_seconds
        self.recovery = recovery
        self._strikes: dict[str, deque[float]] = {}

    def record_strike(self, tree: str, now: float) -> tuple[int, bool]:
        """Count a strike. Return the strikes within the last minute, and whether to escalate."""
        times = self._strikes.setdefault(tree, deque(maxlen=MAX_STRIKES))
        times.append(now)
        recent = sum(1 for at in times if now - at < STRIKE_WINDOW_SECONDS)
        if recent >= MAX_STRIKES:
            times.clear()
        return recent, recent >= MAX_STRIKES
