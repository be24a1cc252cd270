"""Leaves most of many alike entries out of the audit log, so that no stranger can fill the disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from dodona.core.domain.audit import AuditEntry

WINDOW: Final = 60.0  # seconds
MOST_ALIKE: Final = 10  # entries of a kind from one place within a window
MOST_OF_ALL: Final = 120  # entries within a window, wherever they come from
MOST_PLACES: Final = 4_096  # that are told apart

_Key: TypeAlias = tuple[str, str, str]


@dataclass(slots=True)
class _Count:
    begun: float
    kept: int = 0
    left_out: int = 0
    last: AuditEntry | None = None


class AuditSampler:
    """What an operator does is always kept."""

    def __init__(self) -> None:
        self._counts: dict[_Key, _Count] = {}
        self._all = _Count(0.0)

    def take(self, entry: AuditEntry) -> AuditEntry | None:
        """The entry, with how many alike were left out before it; None if it is left out too."""
        if entry.kind == "admin":
            return entry
        count = self._count(entry)
        if entry.at - self._all.begun >= WINDOW:
            self._all = _Count(entry.at)
        if count.kept >= MOST_ALIKE or self._all.kept >= MOST_OF_ALL:
            count.left_out += 1
            count.last = entry
            return None
        count.kept += 1
        self._all.kept += 1
        left_out, count.left_out = count.left_out, 0
        return replace(entry, more=left_out)

    def left_over(self, now: float) -> Iterator[AuditEntry]:
        """The last one of those that were left out and never told of, once their time is over."""
        over = [key for key, count in self._counts.items() if now - count.begun >= WINDOW]
        for key in over:
            count = self._counts.pop(key)
            if count.last is not None and count.left_out:
                yield replace(count.last, more=count.left_out - 1)

    def _count(self, entry: AuditEntry) -> _Count:
        key = (entry.kind, entry.address, entry.user_id)
        count = self._counts.get(key)
        if count is None and len(self._counts) >= MOST_PLACES:
            key = (entry.kind, "", "")  # all the rest together
            count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = _Count(entry.at)
        elif entry.at - count.begun >= WINDOW:
            count.begun, count.kept = entry.at, 0
        return count
