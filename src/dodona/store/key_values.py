"""Values as JSON by key: the state of rule packs, and the global blackboard keys of trees."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from sqlalchemy import Table, bindparam, delete, select

from dodona.core.errors import BadRequest
from dodona.store.db.database import Database, StoreOperation, Transaction
from dodona.store.db.statements import insert_or_replace, statement
from dodona.store.db.text import Redact, check_name, from_json, to_bounded_json
from dodona.store.schema import plugin_state, tree_globals

MAX_KEYS: Final = 1_000  # per user and pack, and per user, project and agent
MAX_VALUE_BYTES: Final = 65_536  # of a value as JSON
_MAX_NAME_CHARS: Final = 200

_log = logging.getLogger(__name__)

_Encoded: TypeAlias = list[tuple[str, str | None]]  # None deletes the key


class _KeyedTable:
    """The statements of a table in which a key is unique within a scope."""

    def __init__(self, table: Table) -> None:
        scope = [column for column in table.primary_key if column.name != "key"]
        in_scope = [column == bindparam(column.name) for column in scope]
        by_key = (*in_scope, table.c.key == bindparam("key"))
        self.name = table.name
        self.select_keys = statement(select(table.c.key).where(*in_scope))
        self.select_value = statement(select(table.c.value_json).where(*by_key))
        self.delete_value = statement(delete(table).where(*by_key))
        names = [column.name for column in scope]
        self.upsert_value = insert_or_replace(table, *names, "key", "value_json")

    def write(self, tx: Transaction, scope: Mapping[str, str], encoded: _Encoded) -> list[str]:
        """Write and delete values; return the keys that exceed the limit, which are not stored."""
        tx.lock_name("\n".join((self.name, *scope.values())))  # keeps the count stable
        existing = {row[0] for row in tx.fetch_all(self.select_keys, **scope)}
        for key, value in encoded:
            if value is None and key in existing:
                tx.execute(self.delete_value, key=key, **scope)
                existing.remove(key)
        dropped: list[str] = []
        for key, value in encoded:
            if value is None:
                continue
            if key not in existing and len(existing) >= MAX_KEYS:
                dropped.append(key)
                continue
            tx.execute(self.upsert_value, key=key, value_json=value, **scope)
            existing.add(key)
        return dropped


_PACKS = _KeyedTable(plugin_state)
_GLOBALS = _KeyedTable(tree_globals)
_SELECT_PACK_VALUES = statement(
    select(plugin_state.c.plugin, plugin_state.c.key, plugin_state.c.value_json)
    .where(plugin_state.c.user_id == bindparam("user_id"))
    .order_by(plugin_state.c.plugin, plugin_state.c.key)
)


class PackState:
    """The state of all packs, and the users' overrides. `redact` removes known secrets."""

    def __init__(self, database: Database, *, redact: Redact) -> None:
        self._database = database
        self._redact = redact

    async def all(self, user_id: str) -> dict[str, dict[str, Any]]:
        """Return all values of a user, by pack and key."""
        rows = await self._database.read(
            lambda tx: tx.fetch_all(_SELECT_PACK_VALUES, user_id=user_id)
        )
        state: dict[str, dict[str, Any]] = {}
        for pack, key, value in rows:
            state.setdefault(pack, {})[key] = from_json(value)
        return state

    async def put(self, user_id: str, pack: str, values: Mapping[str, Any]) -> None:
        """Store values; None deletes a key."""
        scope, encoded = self._encode(user_id, pack, values)

        def write(tx: Transaction) -> None:
            if _PACKS.write(tx, scope, encoded):
                raise BadRequest(
                    f"the pack {pack!r:.80} may store at most {MAX_KEYS:,} keys per user.",
                    hint="Delete some: set them to None.",
                )

        await self._database.write(write)

    def put_operation(
        self, user_id: str, pack: str, values: Mapping[str, Any]
    ) -> StoreOperation[None]:
        """Return an operation that stores values in the caller's transaction.

        Invalid values raise immediately. The operation rejects nothing, because it shares the
        transaction with others: keys above the limit are dropped, and a warning is logged.
        """
        scope, encoded = self._encode(user_id, pack, values)
        return _write_or_warn(_PACKS, scope, encoded, f"the pack {pack!r}")

    def _encode(
        self, user_id: str, pack: str, values: Mapping[str, Any]
    ) -> tuple[dict[str, str], _Encoded]:
        """Encode values, sorted by key, so that all transactions lock rows in the same order."""
        check_name("the user of a pack's state", user_id, max_chars=_MAX_NAME_CHARS)
        check_name("the name of a pack", pack, max_chars=_MAX_NAME_CHARS)
        for key in values:
            check_name("a key of a pack's state", key, max_chars=_MAX_NAME_CHARS)
        encoded = [
            (key, None if value is None else _encode_value(key, value, self._redact))
            for key, value in sorted(values.items())
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

    async def get(self, scope: GlobalsScope, keys: Iterable[str]) -> dict[str, Any]:
        """Return the values of those keys that are stored."""
        names = scope._asdict()

        def read(tx: Transaction) -> dict[str, Any]:
            rows = {key: tx.fetch_one(_GLOBALS.select_value, key=key, **names) for key in keys}
            return {key: from_json(row[0]) for key, row in rows.items() if row is not None}

        return await self._database.read(read)

    def put_operation(self, scope: GlobalsScope, values: Mapping[str, Any]) -> StoreOperation[None]:
        """Return an operation that stores values in the caller's transaction.

        It rejects nothing, because the run has ended: keys above the limit and values that are too
        large or no JSON are dropped, and a warning is logged.
        """
        encoded: _Encoded = []
        name = f"the agent {scope.agent_id!r}"
        for key, value in sorted(values.items()):
            try:
                check_name("a global key", key, max_chars=_MAX_NAME_CHARS)
                encoded.append((key, _encode_value(key, value, self._redact)))
            except BadRequest as error:
                _log.warning("a global key of %s was not stored: %s", name, error.message)
        return _write_or_warn(_GLOBALS, scope._asdict(), encoded, name)


def _encode_value(key: str, value: Any, redact: Redact) -> str:
    return to_bounded_json(f"the value of {key!r:.80}", value, redact, max_bytes=MAX_VALUE_BYTES)


def _write_or_warn(
    table: _KeyedTable, scope: Mapping[str, str], encoded: _Encoded, name: str
) -> StoreOperation[None]:
    def write(tx: Transaction) -> None:
        if dropped := table.write(tx, scope, encoded):
            keys = ", ".join(dropped)[:200]
            _log.warning("%s already stores %s keys for a user; dropped: %s", name, MAX_KEYS, keys)

    return write
