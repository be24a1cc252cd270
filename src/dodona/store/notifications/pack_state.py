"""What packs of rules keep for each user, as JSON by pack and key."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import bindparam, delete, select

from dodona.core.errors import BadRequest
from dodona.store.db.database import Database, Operation, Transaction
from dodona.store.db.statements import insert_or_replace, statement
from dodona.store.db.text import Redact, check_name, from_json, to_bounded_json
from dodona.store.schema import plugin_state

MAX_KEYS: Final = 1_000  # of a user and pack
MAX_VALUE_BYTES: Final = 65_536  # of a value, as JSON
_MAX_NAME_CHARS: Final = 200

_log = logging.getLogger(__name__)

_OWNED_BY_USER = plugin_state.c.user_id == bindparam("user_id")
_IN_PACK = (_OWNED_BY_USER, plugin_state.c.plugin == bindparam("plugin"))
_SELECT_VALUES = statement(
    select(plugin_state.c.plugin, plugin_state.c.key, plugin_state.c.value_json)
    .where(_OWNED_BY_USER)
    .order_by(plugin_state.c.plugin, plugin_state.c.key)
)
_SELECT_KEYS = statement(select(plugin_state.c.key).where(*_IN_PACK))
_UPSERT_VALUE = insert_or_replace(plugin_state, "user_id", "plugin", "key", "value_json")
_DELETE_VALUE = statement(
    delete(plugin_state).where(*_IN_PACK, plugin_state.c.key == bindparam("key"))
)


class PackState:
    """The `PackState` of the store. `hide` takes known secrets out of what is kept."""

    def __init__(self, database: Database, *, redact: Redact) -> None:
        self._database = database
        self._redact = redact

    async def all(self, user_id: str) -> dict[str, dict[str, Any]]:
        rows = await self._database.read(lambda tx: tx.fetch_all(_SELECT_VALUES, user_id=user_id))
        found: dict[str, dict[str, Any]] = {}
        for pack, key, value in rows:
            found.setdefault(pack, {})[key] = from_json(value)
        return found

    async def put(self, user_id: str, pack: str, values: Mapping[str, Any]) -> None:
        written = self._encode_values(user_id, pack, values)

        def write(tx: Transaction) -> None:
            if _write_values(tx, user_id, pack, written):
                raise BadRequest(
                    f"the pack {pack!r:.80} keeps {MAX_KEYS:,} keys at most for a user.",
                    hint="Forget some: put them as None.",
                )

        await self._database.write(write)

    def put_operation(self, user_id: str, pack: str, values: Mapping[str, Any]) -> Operation[None]:
        written = self._encode_values(user_id, pack, values)

        def write(tx: Transaction) -> None:
            if dropped := _write_values(tx, user_id, pack, written):
                _log.warning(
                    "the pack %r keeps %s keys for a user already; not kept: %s",
                    pack,
                    MAX_KEYS,
                    ", ".join(dropped)[:200],
                )

        return write

    def _encode_values(
        self, user_id: str, pack: str, values: Mapping[str, Any]
    ) -> list[tuple[str, str | None]]:
        """Keys and JSON in the order of the keys, so that everybody takes rows in the same one."""
        check_name("the user of a pack's state", user_id, max_chars=_MAX_NAME_CHARS)
        check_name("the name of a pack", pack, max_chars=_MAX_NAME_CHARS)
        for key in values:
            check_name("a key of a pack's state", key, max_chars=_MAX_NAME_CHARS)
        return [(key, self._encode_value(key, value)) for key, value in sorted(values.items())]

    def _encode_value(self, key: str, value: Any) -> str | None:
        if value is None:
            return None
        return to_bounded_json(
            f"the value of {key!r:.80}", value, self._redact, max_bytes=MAX_VALUE_BYTES
        )


def _write_values(
    tx: Transaction, user_id: str, pack: str, encoded: list[tuple[str, str | None]]
) -> list[str]:
    """Keep and forget; the keys that there is no room for, which are not kept."""
    mine = {"user_id": user_id, "plugin": pack}
    tx.lock_name(f"pack state {user_id}\n{pack}")  # what is counted stays so
    known = {row[0] for row in tx.fetch_all(_SELECT_KEYS, **mine)}
    for key, value in encoded:
        if value is None and key in known:
            tx.execute(_DELETE_VALUE, key=key, **mine)
            known.remove(key)
    dropped: list[str] = []
    for key, value in encoded:
        if value is None:
            continue
        if key not in known and len(known) >= MAX_KEYS:
            dropped.append(key)
            continue
        tx.execute(_UPSERT_VALUE, key=key, value_json=value, **mine)
        known.add(key)
    return dropped
