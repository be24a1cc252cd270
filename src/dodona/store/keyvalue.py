"""The global keys of trees, kept in the store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import bindparam, select

from dodona.store.db.database import Database, Transaction
from dodona.store.db.statements import replacement, statement
from dodona.store.db.text import from_json, to_json
from dodona.store.schema import tree_globals

_READ = statement(
    select(tree_globals.c.value_json).where(
        tree_globals.c.scope == bindparam("scope"), tree_globals.c.key == bindparam("key")
    )
)
_PUT = replacement(tree_globals, "scope", "key", "value_json")


class StoreKeyValue:
    """The `KeyValue` of one scope: a user, an agent."""

    def __init__(self, database: Database, scope: str) -> None:
        self._database = database
        self._scope = scope

    async def get(self, keys: Iterable[str]) -> Mapping[str, Any]:
        wanted = tuple(keys)

        def read(tx: Transaction) -> dict[str, Any]:
            found = {key: tx.row(_READ, scope=self._scope, key=key) for key in wanted}
            return {key: from_json(row[0]) for key, row in found.items() if row is not None}

        return await self._database.read(read)

    async def put(self, changes: Mapping[str, Any]) -> None:
        rows = sorted((key, to_json(value)) for key, value in changes.items())

        def write(tx: Transaction) -> None:
            for key, value in rows:
                tx.run(_PUT, scope=self._scope, key=key, value_json=value)

        await self._database.write(write)
