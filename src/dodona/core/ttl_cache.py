"""A bounded cache whose values expire."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from time import monotonic
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TtlCache(Generic[K, V]):
    """Caches values for `seconds`. Beyond `max_size`, the value that was put first is dropped.

    An expired value stays until it is replaced or dropped: `get_stale` and `in` still find it.
    """

    def __init__(
        self, seconds: float, *, max_size: int, clock: Callable[[], float] | None = None
    ) -> None:
        self._seconds = seconds
        self._max_size = max_size
        self._clock = clock
        self._entries: dict[K, tuple[float, V]] = {}  # the time of expiry and the value

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def get(self, key: K) -> V | None:
        """Return the value; None if there is none or it has expired."""
        entry = self._entries.get(key)
        return entry[1] if entry is not None and self._now() < entry[0] else None

    def get_stale(self, key: K) -> V | None:
        """Return the value, also if it has expired."""
        entry = self._entries.get(key)
        return None if entry is None else entry[1]

    def seconds_left(self, key: K) -> float:
        """Return the time until the value expires; 0 if there is none or it has expired."""
        entry = self._entries.get(key)
        return 0.0 if entry is None else max(0.0, entry[0] - self._now())

    def put(self, key: K, value: V) -> None:
        self._entries.pop(key, None)
        if len(self._entries) >= self._max_size:
            del self._entries[next(iter(self._entries))]
        self._entries[key] = (self._now() + self._seconds, value)

    def expire(self, key: K) -> None:
        """Expire the value now, and keep it as a stale one."""
        entry = self._entries.get(key)
        if entry is not None:
            self._entries[key] = (float("-inf"), entry[1])

    def _now(self) -> float:
        return monotonic() if self._clock is None else self._clock()

    def discard(self, key: K) -> None:
        self._entries.pop(key, None)
