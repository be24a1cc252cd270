"""Rates: each key has a bucket of turns that fills up again with time."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import islice
from time import monotonic
from typing import Final

MOST_KEYS: Final = 10_000


class TokenBuckets:
    """A minute's turns at once, then as many as the rate gives.

    What is kept is bounded: of too many, those that were used the longest ago are forgotten. Most
    of these are full again; whoever has that many addresses gets a few turns more.
    """

    def __init__(self, per_minute: int, most_keys: int = MOST_KEYS) -> None:
        self._full = float(per_minute)
        self._rate = per_minute / 60.0  # turns a second
        self._most_keys = most_keys
        self._left: dict[Hashable, tuple[float, float]] = {}  # turns, and when that was

    def __len__(self) -> int:
        return len(self._left)

    def take(self, key: Hashable) -> float:
        """Take a turn: 0 when there was one, else the seconds until there is."""
        now = monotonic()
        turns = self._turns(key, now)
        if turns < 1.0:
            return (1.0 - turns) / self._rate
        # Taken out and put back: the order of the dictionary is that of the last use.
        self._left.pop(key, None)
        if len(self._left) >= self._most_keys:
            for old in list(islice(self._left, max(1, self._most_keys // 10))):
                del self._left[old]
        self._left[key] = (turns - 1.0, now)
        return 0.0

    def wait(self, key: Hashable) -> float:
        """The seconds until there is a turn; none is taken."""
        return max(0.0, 1.0 - self._turns(key, monotonic())) / self._rate

    def _turns(self, key: Hashable, now: float) -> float:
        turns, at = self._left.get(key, (self._full, now))
        return min(self._full, turns + (now - at) * self._rate)
