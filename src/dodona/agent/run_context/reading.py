"""What a model may have read: all results of tools before it is called."""

from __future__ import annotations

from typing import Any, Final, cast

from msgspec import convert

from dodona.agent.run_context.context import RunContext
from dodona.core.domain.trust import Marks
from dodona.core.ports.journal import Journal, StepRecord, StepStart

MODEL_LEAF: Final = "llm-call"
RESULTS_KEY: Final = "tool_results"  # each result is written to the blackboard


class ReadingJournal:
    """The journal of a tree; a run gets the marks of its results before its next model call.

    A tree may pass a result to the model in any way, so this does not depend on its leaves. The
    results of an earlier attempt count too.
    """

    def __init__(self, journal: Journal, context: RunContext) -> None:
        self._journal = journal
        self._context = context

    def begin(self, start: StepStart) -> StepRecord | None:
        if start.leaf == MODEL_LEAF:
            self._context.read_results()
        record = self._journal.begin(start)
        if record is not None:
            self._add_result(record)
        return record

    def finish(self, key: str, record: StepRecord) -> None:
        self._add_result(record)
        self._journal.finish(key, record)

    async def flush(self) -> None:
        await self._journal.flush()

    def _add_result(self, record: StepRecord) -> None:
        result = record.writes.get(RESULTS_KEY)
        if isinstance(result, dict):
            fields = cast("dict[str, Any]", result)
            marks = convert(fields.get("marks", ()), Marks)
            self._context.add_result(marks, is_private=bool(fields.get("is_private")))
