"""The global blackboard keys of a run's tree, which outlive the run."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from dodona.agent.run_context.context import RunContext
from dodona.core.errors import TreeError
from dodona.core.ports.journal import Effect, Journal, StepRecord, StepStart
from dodona.store.key_values import GlobalsScope

_STEP_KEY: Final = ":globals"  # no node has a path like this
_LEAF: Final = "read_globals"

_log = logging.getLogger(__name__)


class RunGlobals:
    """Implements `KeyValueStore` for a run.

    The values are read in a step of the journal, so that a resumed run starts with the same ones.
    They are written in the transaction that ends the run: once, and only by the process that owns
    the run.
    """

    def __init__(self, context: RunContext, journal: Journal) -> None:
        self._context = context
        self._journal = journal
        self._scope = GlobalsScope(context.user_id, context.project_id, context.snapshot.agent_id)

    async def get(self, keys: Iterable[str]) -> Mapping[str, Any]:
        record = self._journal.begin(StepStart(_STEP_KEY, _LEAF, Effect.NONE))
        if record is not None:
            return record.writes
        stored = await self._context.deps.storage.tree_globals.get(self._scope, keys)
        values = {key: value for key, value in stored.items() if self._fits(key, value)}
        self._journal.finish(_STEP_KEY, StepRecord(_LEAF, True, values))
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
        operation = self._context.deps.storage.tree_globals.put_operation(self._scope, changes)
        self._context.journal.add_to_end(operation)
