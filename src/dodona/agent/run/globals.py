"""The global blackboard keys of a run's tree, which outlive the run."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import convert, to_builtins

from dodona.agent.run_context.context import RunContext
from dodona.core.domain.trust import Marks, can_hold_text, merge_marks, sort_marks
from dodona.core.errors import TreeError
from dodona.core.ports.journal import Effect, Journal, StepRecord, StepStart
from dodona.store.key_values import GlobalsScope

_STEP_KEY: Final = ":globals"  # no node has a path like this
_LEAF: Final = "read_globals"
_MARKS_KEY: Final = "_marks"  # among the values of the step; no global key starts with _

_log = logging.getLogger(__name__)


class RunGlobals:
    """Implements `KeyValueStore` for a run.

    The values are read in a step of the journal, so that a resumed run starts with the same ones.
    The run gets their marks. They are written in the transaction that ends the run: once, and only
    by the process that owns the run.
    """

    def __init__(self, context: RunContext, journal: Journal) -> None:
        self._context = context
        self._journal = journal
        self._scope = GlobalsScope(context.user_id, context.project_id, context.snapshot.agent_id)

    async def get(self, keys: Iterable[str]) -> Mapping[str, Any]:
        record = self._journal.begin(StepStart(_STEP_KEY, _LEAF, Effect.NONE))
        if record is None:
            record = StepRecord(_LEAF, True, await self._read(keys))
            self._journal.finish(_STEP_KEY, record)
        values = dict(record.writes)
        marks = convert(values.pop(_MARKS_KEY, []), Marks)
        is_private = any(map(can_hold_text, values.values()))
        self._context.record_reading(marks, is_private=is_private)
        return values

    async def _read(self, keys: Iterable[str]) -> dict[str, Any]:
        stored = await self._context.deps.storage.tree_globals.get(self._scope, keys)
        fitting = {key: each for key, each in stored.items() if self._fits(key, each.value)}
        values = {key: each.value for key, each in fitting.items()}
        if marks := merge_marks(*(each.marks for each in fitting.values())):
            values[_MARKS_KEY] = to_builtins(sort_marks(marks))
        return values

    def _fits(self, key: str, value: Any) -> bool:
        """Whether a value fits the tree, which may have changed; otherwise its default applies."""
        try:
            self._context.snapshot.tree.run_schema.keys[key].check(value)
        except TreeError as error:
            _log.warning("the stored global key %s is ignored: %s", key, error)
            return False
        return True

    async def put(self, changes: Mapping[str, Any]) -> None:
        self._context.read_results()  # a tree may store one
        operation = self._context.deps.storage.tree_globals.put_operation(
            self._scope, changes, self._context.marks
        )
        self._context.journal.add_to_end(operation)
