"""The journal of a run that was cancelled while nobody drove it.

What it did before is applied, so that what it said is kept; it does nothing more.
"""

from __future__ import annotations

from collections.abc import Callable

from dodona.core.ports import Journal, StepRecord, StepStart


class EndingJournal:
    """Calls `cancel` at the first step that has not been done yet."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.cancel: Callable[[], None] = _nothing

    def begin(self, start: StepStart) -> StepRecord | None:
        record = self._journal.begin(start)
        if record is None or record.outcome_unknown:
            self.cancel()
        return record

    def finish(self, key: str, record: StepRecord) -> None:
        self._journal.finish(key, record)

    async def flush(self) -> None:
        await self._journal.flush()


def _nothing() -> None:
    """Until there is a run to cancel."""
