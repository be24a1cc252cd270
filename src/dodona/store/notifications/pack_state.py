"""What packs of rules keep for each user, as JSON by pack and key."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import bindparam, delete, select

from dodona.core.errors import BadRequest
from dodona.store.db.database import Database, Operation, Transaction
from dodona.store.db.statements import replacement, statement
from dodona.store.db.text import Redact, bounded_json, check_name, from_json
from dodona.store.schema import plugin_state

MOST_KEYS: Final = 1_000  # of a user and pack
MOST_BYTES: Final = 65_536  # of a value, as JSON
_LONGEST_NAME: Final = 200

_log = logging.getLogger(__name__)

_MINE = plugin_state.c.user_id == bindparam("user_id")
_PACK = (_MINE, plugin_state.c.plugin == bindparam("plugin"))
_ALL = statement(
    select(plugin_state.c.plugin, plugin_state.c.key, plugin_state.c.value_json)
    .where(_MINE)
    .order_by(plugin_state.c.plugin, plugin_state.c.key)
)
_KEYS = statement(select(plugin_state.c.key).where(*_PACK))
_PUT = replacement(plugin_state, "user_id", "plugin", "key", "value_json")
_FORGET = statement(delete(plugin_state).where(*_PACK, plugin_state.c.key == bindparam("key")))


class PackState:
    """The `PackState` of the store. `hide` takes known secrets out of what is kept."""

    def __init__(self, database: Database, *, hide: Redact) -> None:
        self._database = database
        self._hide = hide

    async def all(self, user_id: str) -> dict[str, dict[str, Any]]:
        rows = await self._database.read(lambda tx: tx.rows(_ALL, user_id=user_id))
        found: dict[str, dict[str, Any]] = {}
        for pack, key, value in rows:
            found.setdefault(pack, {})[key] = from_json(value)
        return found

    async def put(self, user_id: str, pack: str, values: Mapping[str, Any]) -> None:
        written = self._written(user_id, pack, values)

        def write(tx: Transaction) -> None:
            if _write(tx, user_id, pack, written):
                raise BadRequest(
                    f"the pack {pack!r:.80} keeps {MOST_KEYS:,} keys at most for a user.",
                    hint="Forget some: put them as None.",
                )

        await self._database.write(write)

    def putting(self, user_id: str, pack: str, values: Mapping[str, Any]) -> Operation[None]:
        written = self._written(user_id, pack, values)

        def write(tx: Transaction) -> None:
            if dropped := _write(tx, user_id, pack, written):
                _log.warning(
                    "the pack %r keeps %s keys for a user already; not kept: %s",
                    pack,
                    MOST_KEYS,
                    ", ".join(dropped)[:200],
                )

        return write

    def _written(
        self, user_id: str, pack: str, values: Mapping[str, Any]
    ) -> list[tuple[str, str | None]]:
        """Keys and JSON in the order of the keys, so that everybody takes rows in the same one."""
        check_name("the user of a pack's state", user_id, most=_LONGEST_NAME)
        check_name("the name of a pack", pack, most=_LONGEST_NAME)
        for key in values:
            check_name("a key of a pack's state", key, most=_LONGEST_NAME)
        return [(key, self._json(key, value)) for key, value in sorted(values.items())]

    def _json(self, key: str, value: Any) -> str | None:
        if value is None:
            return None
        return bounded_json(f"the value of {key!r:.80}", value, self._hide, most=MOST_BYTES)


def _write(
    tx: Transaction, user_id: str, pack: str, written: list[tuple[str, str | None]]
) -> list[str]:
    """Keep and forget; the keys that there is no room for, which are not kept."""
    mine = {"user_id": user_id, "plugin": pack}
    tx.lock_name(f"pack state {user_id}\n{pack}")  # what is counted stays so
    known = {row[0] for row in tx.rows(_KEYS, **mine)}
    for key, value in written:
        if value is None and key in known:
            tx.run(_FORGET, key=key, **mine)
            known.remove(key)
    dropped: list[str] = []
    for key, value in written:
        if value is None:
            continue
        if key not in known and len(known) >= MOST_KEYS:
            dropped.append(key)
            continue
        tx.run(_PUT, key=key, value_json=value, **mine)
        known.add(key)
    return dropped
