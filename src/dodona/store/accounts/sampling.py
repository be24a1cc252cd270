"""Samples similar audit log entries, so that untrusted clients cannot fill the disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from msgspec.structs import replace

from dodona.core.domain.audit import AuditEntry

WINDOW_SECONDS: Final = 60.0
MAX_ALIKE: Final = 10  # entries of one kind from one source per window
MAX_TOTAL: Final = 120  # entries per window, from all sources
MAX_SOURCES: Final = 4_096  # sources that are counted separately

_SourceKey: TypeAlias = tuple[str, str, str]


@dataclass(slots=True)
class _WindowCount:
    started_at: float
    accepted: int = 0
    omitted: int = 0
    last_omitted: AuditEntry | None = None


class AuditSampler:
    """Decides which entries are written. Entries of kind `admin` always are."""

    def __init__(self) -> None:
        self._counts: dict[_SourceKey, _WindowCount] = {}
        self._total = _WindowCount(0.0)

    def sample(self, entry: AuditEntry) -> AuditEntry | None:
        """Return the entry with the number of similar ones omitted before it; None to omit it."""
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
        omitted, count.omitted = count.omitted, 0
        return replace(entry, more=omitted)

    def drain_omitted(self, now: float) -> Iterator[AuditEntry]:
        """Yield the last omitted entry of each window that has ended, if not reported yet."""
        ended = [
            key for key, count in self._counts.items() if now - count.started_at >= WINDOW_SECONDS
        ]
        for key in ended:
            count = self._counts.pop(key)
            if count.last_omitted is not None and count.omitted:
                yield replace(count.last_omitted, more=count.omitted - 1)

    def _count_for(self, entry: AuditEntry) -> _WindowCount:
        key = (entry.kind, entry.address, entry.user_id)
        count = self._counts.get(key)
        if count is None and len(self._counts) >= MAX_SOURCES:
            key = (entry.kind, "", "")  # all other sources together
            count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = _WindowCount(entry.at)
        elif entry.at - count.started_at >= WINDOW_SECONDS:
            count.started_at, count.accepted = entry.at, 0
        return count
