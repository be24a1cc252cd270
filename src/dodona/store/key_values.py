"""Values as JSON by key: the state of rule packs, and the global blackboard keys of trees."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from sqlalchemy import Table, bindparam, delete, select

from dodona.core.domain.trust import NO_MARKS, Marks, can_hold_text, decode_marks
from dodona.core.errors import BadRequest
from dodona.store.db.database import Database, StoreOperation, Transaction
from dodona.store.db.statements import insert_or_replace, statement
from dodona.store.db.text import (
    Redact,
    check_name,
    from_json,
    to_bounded_json,
    to_marks_json,
)
from dodona.store.schema import plugin_state, tree_globals

MAX_KEYS: Final = 1_000  # per user and pack, and per user, project and agent
MAX_VALUE_BYTES: Final = 65_536  # of a value as JSON
_MAX_NAME_CHARS: Final = 200

_log = logging.getLogger(__name__)


class StoredValue(NamedTuple):
    """A value with the untrusted sources that it may come from."""

    value: Any
    marks: Marks = NO_MARKS


class _EncodedValue(NamedTuple):
    """A value and its marks as JSON; a value of None deletes the key."""

    key: str
    value_json: str | None
    marks_json: str | None


_Encoded: TypeAlias = list[_EncodedValue]


class _KeyedTable:
    """The statements of a table in which a key is unique within a scope."""

    def __init__(self, table: Table) -> None:
        scope = [column for column in table.primary_key if column.name != "key"]
        in_scope = [column == bindparam(column.name) for column in scope]
        by_key = (*in_scope, table.c.key == bindparam("key"))
        self.name = table.name
        self.select_keys = statement(select(table.c.key).where(*in_scope))
        self.select_value = statement(select(table.c.value_json, table.c.marks_json).where(*by_key))
        self.delete_value = statement(delete(table).where(*by_key))
        names = [column.name for column in scope]
        self.upsert_value = insert_or_replace(table, *names, "key", "value_json", "marks_json")

    def write(self, tx: Transaction, scope: Mapping[str, str], encoded: _Encoded) -> list[str]:
        """Write and delete values; return the keys that exceed the limit, which are not stored."""
        tx.lock_name("\n".join((self.name, *scope.values())))  # keeps the count stable
        existing = {row[0] for row in tx.fetch_all(self.select_keys, **scope)}
        for each in encoded:
            if each.value_json is None and each.key in existing:
                tx.execute(self.delete_value, key=each.key, **scope)
                existing.remove(each.key)
        dropped: list[str] = []
        for each in encoded:
            if each.value_json is None:
                continue
            if each.key not in existing and len(existing) >= MAX_KEYS:
                dropped.append(each.key)
                continue
            tx.execute(self.upsert_value, **each._asdict(), **scope)
            existing.add(each.key)
        return dropped


_PACKS = _KeyedTable(plugin_state)
_GLOBALS = _KeyedTable(tree_globals)
_SELECT_PACK_VALUES = statement(
    select(
        *(plugin_state.c.plugin, plugin_state.c.key),
        *(plugin_state.c.value_json, plugin_state.c.marks_json),
    )
    .where(plugin_state.c.user_id == bindparam("user_id"))
    .order_by(plugin_state.c.plugin, plugin_state.c.key)
)


class PackState:
    """The state of all packs, and the users' overrides. `redact` removes known secrets."""

    def __init__(self, database: Database, *, redact: Redact) -> None:
        self._database = database
        self._redact = redact

    async def all(self, user_id: str) -> dict[str, dict[str, StoredValue]]:
        """Return all values of a user, by pack and key."""
        rows = await self._database.read(
            lambda tx: tx.fetch_all(_SELECT_PACK_VALUES, user_id=user_id)
        )
        state: dict[str, dict[str, StoredValue]] = {}
        for pack, key, value, marks in rows:
            state.setdefault(pack, {})[key] = _stored_value(value, marks)
        return state

    async def put(self, user_id: str, pack: str, values: Mapping[str, Any]) -> None:
        """Store values without marks; None deletes a key."""
        unmarked = {key: StoredValue(value) for key, value in values.items()}
        scope, encoded = self._encode(user_id, pack, unmarked)

        def write(tx: Transaction) -> None:
            if _PACKS.write(tx, scope, encoded):
                raise BadRequest(
                    f"the pack {pack!r:.80} may store at most {MAX_KEYS:,} keys per user.",
                    hint="Delete some: set them to None.",
                )

        await self._database.write(write)

    def put_operation(
        self, user_id: str, pack: str, values: Mapping[str, StoredValue]
    ) -> StoreOperation[None]:
        """Return an operation that stores values in the caller's transaction; None deletes a key.

        Invalid values raise immediately. The operation rejects nothing, because it shares the
        transaction with others: keys above the limit are dropped, and a warning is logged.
        """
        scope, encoded = self._encode(user_id, pack, values)
        return _write_or_warn(_PACKS, scope, encoded, f"the pack {pack!r}")

    def _encode(
        self, user_id: str, pack: str, values: Mapping[str, StoredValue]
    ) -> tuple[dict[str, str], _Encoded]:
        """Encode values, sorted by key, so that all transactions lock rows in the same order."""
        check_name("the user of a pack's state", user_id, max_chars=_MAX_NAME_CHARS)
        check_name("the name of a pack", pack, max_chars=_MAX_NAME_CHARS)
        for key in values:
            check_name("a key of a pack's state", key, max_chars=_MAX_NAME_CHARS)
        encoded = [
            _EncodedValue(key, None, None)
            if stored.value is None
            else _encode_value(key, stored, self._redact)
            for key, stored in sorted(values.items())
        ]
        return {"user_id": user_id, "plugin": pack}, encoded


class GlobalsScope(NamedTuple):
    """The runs that share global keys: those of one user with one agent in one project."""

    user_id: str
    project_id: str
    agent_id: str


class TreeGlobals:
    """The global blackboard keys of trees. `redact` removes known secrets."""

    def __init__(self, database: Database, *, redact: Redact) -> None:
        self._database = database
        self._redact = redact

    async def get(self, scope: GlobalsScope, keys: Iterable[str]) -> dict[str, StoredValue]:
        """Return the values of those keys that are stored."""
        names = scope._asdict()

        def read(tx: Transaction) -> dict[str, StoredValue]:
            rows = {key: tx.fetch_one(_GLOBALS.select_value, key=key, **names) for key in keys}
            return {key: _stored_value(*row) for key, row in rows.items() if row is not None}

        return await self._database.read(read)

    def put_operation(
        self, scope: GlobalsScope, values: Mapping[str, Any], marks: Marks = NO_MARKS
    ) -> StoreOperation[None]:
        """Return an operation that stores values in the caller's transaction.

        It rejects nothing, because the run has ended: keys above the limit and values that are too
        large or no JSON are dropped, and a warning is logged. Numbers and flags get no marks: a
        counter that each run reads and writes would otherwise mark all runs forever.
        """
        encoded: _Encoded = []
        name = f"the agent {scope.agent_id!r}"
        for key, value in sorted(values.items()):
            try:
                check_name("a global key", key, max_chars=_MAX_NAME_CHARS)
                stored = StoredValue(value, marks if can_hold_text(value) else NO_MARKS)
                encoded.append(_encode_value(key, stored, self._redact))
            except BadRequest as error:
                _log.warning("a global key of %s was not stored: %s", name, error.message)
        return _write_or_warn(_GLOBALS, scope._asdict(), encoded, name)


def _encode_value(key: str, stored: StoredValue, redact: Redact) -> _EncodedValue:
    name = f"the value of {key!r:.80}"
    value_json = to_bounded_json(name, stored.value, redact, max_bytes=MAX_VALUE_BYTES)
    return _EncodedValue(key, value_json, to_marks_json(stored.marks, redact))


def _stored_value(value_json: str, marks_json: str | None) -> StoredValue:
    return StoredValue(from_json(value_json), decode_marks(marks_json))


def _write_or_warn(
    table: _KeyedTable, scope: Mapping[str, str], encoded: _Encoded, name: str
) -> StoreOperation[None]:
    def write(tx: Transaction) -> None:
        if dropped := table.write(tx, scope, encoded):
            keys = ", ".join(dropped)[:200]
            _log.warning("%s already stores %s keys for a user; dropped: %s", name, MAX_KEYS, keys)

    return write
