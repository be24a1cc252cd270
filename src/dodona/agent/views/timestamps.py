"""Times as they are shown: ISO 8601, in UTC, to the millisecond."""

from __future__ import annotations

from datetime import UTC, datetime


def iso(moment: float | None) -> str | None:
    if moment is None:
        return None
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def milliseconds(start: float | None, end: float | None) -> int | None:
    """How long it took, once it has ended; never negative, for clocks are put back."""
    return None if start is None or end is None else max(0, round((end - start) * 1000))
