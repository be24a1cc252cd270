"""State that rule packs store for each user, as JSON by pack and key."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import bindparam, delete, select

from dodona.core.errors import BadRequest
from dodona.store.db.database import Database, StoreOperation, Transaction
from dodona.store.db.statements import insert_or_replace, statement
from dodona.store.db.text import Redact, check_name, from_json, to_bounded_json
from dodona.store.schema import plugin_state

MAX_KEYS: Final = 1_000  # per user and pack
MAX_VALUE_BYTES: Final = 65_536  # of a value as JSON
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
    """The state of all packs, and the users' overrides. `redact` removes known secrets."""

    def __init__(self, database: Database, *, redact: Redact) -> None:
        self._database = database
        self._redact = redact

    async def all(self, user_id: str) -> dict[str, dict[str, Any]]:
        """Return all values of a user, by pack and key."""
        rows = await self._database.read(lambda tx: tx.fetch_all(_SELECT_VALUES, user_id=user_id))
        state: dict[str, dict[str, Any]] = {}
        for pack, key, value in rows:
            state.setdefault(pack, {})[key] = from_json(value)
        return state

    async def put(self, user_id: str, pack: str, values: Mapping[str, Any]) -> None:
        """Store values; None deletes a key."""
        encoded = self._encode_values(user_id, pack, values)

        def write(tx: Transaction) -> None:
            if _write_values(tx, user_id, pack, encoded):
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
        encoded = self._encode_values(user_id, pack, values)

        def write(tx: Transaction) -> None:
            if dropped := _write_values(tx, user_id, pack, encoded):
                _log.warning(
                    "the pack %r already stores %s keys for a user; dropped: %s",
                    pack,
                    MAX_KEYS,
                    ", ".join(dropped)[:200],
                )

        return write

    def _encode_values(
        self, user_id: str, pack: str, values: Mapping[str, Any]
    ) -> list[tuple[str, str | None]]:
        """Encode values, sorted by key, so that all transactions lock rows in the same order."""
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
    """Write and delete values; return the keys that exceed the limit, which are not stored."""
    pack_key = {"user_id": user_id, "plugin": pack}
    tx.lock_name(f"pack state {user_id}\n{pack}")  # keeps the count stable
    existing = {row[0] for row in tx.fetch_all(_SELECT_KEYS, **pack_key)}
    for key, value in encoded:
        if value is None and key in existing:
            tx.execute(_DELETE_VALUE, key=key, **pack_key)
            existing.remove(key)
    dropped: list[str] = []
    for key, value in encoded:
        if value is None:
            continue
        if key not in existing and len(existing) >= MAX_KEYS:
            dropped.append(key)
            continue
        tx.execute(_UPSERT_VALUE, key=key, value_json=value, **pack_key)
        existing.add(key)
    return dropped
