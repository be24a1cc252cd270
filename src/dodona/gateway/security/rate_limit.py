"""Rates: each key has a bucket of turns that fills up again with time."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import islice
from time import monotonic
from typing import Final

MAX_KEYS: Final = 10_000


class TokenBuckets:
    """A minute's turns at once, then as many as the rate gives.

    What is kept is bounded: of too many, those that were used the longest ago are forgotten. Most
    of these are full again; whoever has that many addresses gets a few turns more.
    """

    def __init__(self, per_minute: int, max_keys: int = MAX_KEYS) -> None:
        self._capacity = float(per_minute)
        self._rate = per_minute / 60.0  # turns a second
        self._max_keys = max_keys
        self._buckets: dict[Hashable, tuple[float, float]] = {}  # turns, and when that was

    def __len__(self) -> int:
        return len(self._buckets)

    def acquire(self, key: Hashable) -> float:
        """Take a turn: 0 when there was one, else the seconds until there is."""
        now = monotonic()
        turns = self._available(key, now)
        if turns < 1.0:
            return (1.0 - turns) / self._rate
        # Taken out and put back: the order of the dictionary is that of the last use.
        self._buckets.pop(key, None)
        if len(self._buckets) >= self._max_keys:
            for old in list(islice(self._buckets, max(1, self._max_keys // 10))):
                del self._buckets[old]
        self._buckets[key] = (turns - 1.0, now)
        return 0.0

    def wait_seconds(self, key: Hashable) -> float:
        """The seconds until there is a turn; none is taken."""
        return max(0.0, 1.0 - self._available(key, monotonic())) / self._rate

    def _available(self, key: Hashable, now: float) -> float:
        turns, at = self._buckets.get(key, (self._capacity, now))
        return min(self._capacity, turns + (now - at) * self._rate)
