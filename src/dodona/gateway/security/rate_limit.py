"""Rate limits: a token bucket per key that refills over time."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import islice
from time import monotonic
from typing import Final

MAX_KEYS: Final = 10_000


class TokenBuckets:
    """Allows one minute's requests in a burst, then the steady rate.

    Memory is bounded: above `max_keys` the least recently used buckets are dropped. Most of those
    are full again; a client with that many addresses gains a few requests.
    """

    def __init__(self, per_minute: int, max_keys: int = MAX_KEYS) -> None:
        self._capacity = float(per_minute)
        self._rate = per_minute / 60.0  # tokens per second
        self._max_keys = max_keys
        self._buckets: dict[
            Hashable, tuple[float, float]
        ] = {}  # tokens, and the time of that count

    def __len__(self) -> int:
        return len(self._buckets)

    def acquire(self, key: Hashable) -> float:
        """Take a token and return 0, or return the seconds until one is available."""
        now = monotonic()
        tokens = self._available(key, now)
        if tokens < 1.0:
            return (1.0 - tokens) / self._rate
        # Removed and inserted again: the dictionary is ordered by last use.
        self._buckets.pop(key, None)
        if len(self._buckets) >= self._max_keys:
            for old_key in list(islice(self._buckets, max(1, self._max_keys // 10))):
                del self._buckets[old_key]
        self._buckets[key] = (tokens - 1.0, now)
        return 0.0

    def wait_seconds(self, key: Hashable) -> float:
        """Return the seconds until a token is available, without taking one."""
        return max(0.0, 1.0 - self._available(key, monotonic())) / self._rate

    def _available(self, key: Hashable, now: float) -> float:
        tokens, at = self._buckets.get(key, (self._capacity, now))
        return min(self._capacity, tokens + (now - at) * self._rate)
