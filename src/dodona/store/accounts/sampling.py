"""Leaves most of many alike entries out of the audit log, so that no stranger can fill the disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from dodona.core.domain.audit import AuditEntry

WINDOW_SECONDS: Final = 60.0  # seconds
MAX_ALIKE: Final = 10  # entries of a kind from one place within a window
MAX_TOTAL: Final = 120  # entries within a window, wherever they come from
MAX_SOURCES: Final = 4_096  # that are told apart

_SourceKey: TypeAlias = tuple[str, str, str]


@dataclass(slots=True)
class _WindowCount:
    started_at: float
    accepted: int = 0
    omitted: int = 0
    last_omitted: AuditEntry | None = None


class AuditSampler:
    """What an operator does is always kept."""

    def __init__(self) -> None:
        self._counts: dict[_SourceKey, _WindowCount] = {}
        self._total = _WindowCount(0.0)

    def sample(self, entry: AuditEntry) -> AuditEntry | None:
        """The entry, with how many alike were left out before it; None if it is left out too."""
        if entry.kind == "admin":
            return entry
        count = self._count_for(entry)
        if entry.at - self._total.started_at >= WINDOW_SECONDS:
            self._total = _WindowCount(entry.at)
        if count.accepted >= MAX_ALIKE or self._total.accepted >= MAX_TOTAL:
            count.omitted += 1
            count.last_omitted = entry
            return None
        count.accepted += 1
        self._total.accepted += 1
        left_out, count.omitted = count.omitted, 0
        return replace(entry, more=left_out)

    def drain_omitted(self, now: float) -> Iterator[AuditEntry]:
        """The last one of those that were left out and never told of, once their time is over."""
        over = [
            key for key, count in self._counts.items() if now - count.started_at >= WINDOW_SECONDS
        ]
        for key in over:
            count = self._counts.pop(key)
            if count.last_omitted is not None and count.omitted:
                yield replace(count.last_omitted, more=count.omitted - 1)

    def _count_for(self, entry: AuditEntry) -> _WindowCount:
        key = (entry.kind, entry.address, entry.user_id)
        count = self._counts.get(key)
        if count is None and len(self._counts) >= MAX_SOURCES:
            key = (entry.kind, "", "")  # all the rest together
            count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = _WindowCount(entry.at)
        elif entry.at - count.started_at >= WINDOW_SECONDS:
            count.started_at, count.accepted = entry.at, 0
        return count
