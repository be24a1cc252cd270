"""The journal of a run that is resumed, and may be cancelled before it goes on.

What the run did before is applied first, so that what it said is kept.
"""

from __future__ import annotations

from collections.abc import Callable

from dodona.core.ports.journal import Journal, StepRecord, StepStart


class CancelAfterReplay:
    """Calls `stop` at the first step that has not been done yet, if that is wanted by then."""

    def __init__(self, journal: Journal, *, is_wanted: bool) -> None:
        self._journal = journal
        self._is_wanted = is_wanted
        self._is_live = False
        self.stop: Callable[[], None] = _nothing

    def cancel(self) -> None:
        """Stop the run: now, or when it has come to where it was."""
        self._is_wanted = True
        if self._is_live:
            self.stop()

    def begin(self, start: StepStart) -> StepRecord | None:
        record = self._journal.begin(start)
        if not self._is_live and (record is None or record.outcome_unknown):
            self._is_live = True
            if self._is_wanted:
                self.stop()
        return record

    def finish(self, key: str, record: StepRecord) -> None:
        self._journal.finish(key, record)

    async def flush(self) -> None:
        await self._journal.flush()


def _nothing() -> None:
    """Until there is a run to stop."""
