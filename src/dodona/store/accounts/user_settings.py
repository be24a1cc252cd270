"""The settings of each user as JSON; their meaning is defined elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import time
from typing import Any

from sqlalchemy import bindparam, select, update

from dodona.core.errors import BadRequest
from dodona.store.db.database import Database, Transaction
from dodona.store.db.statements import statement, upsert
from dodona.store.db.text import from_json, to_json
from dodona.store.schema import settings

_BY_USER = settings.c.user_id == bindparam("its_user")
_SELECT_SETTINGS = statement(select(settings.c.model_settings_json).where(_BY_USER))
_UPSERT_AND_LOCK = upsert(
    settings,
    lambda add: (
        add.values(user_id=bindparam("user_id"), model_settings_json="{}", updated_at=0.0)
        # The update changes nothing: it locks the row until the end of the transaction.
        .on_conflict_do_update(index_elements=["user_id"], set_={"user_id": add.excluded.user_id})
        .returning(settings.c.model_settings_json)
    ),
)
_UPDATE_SETTINGS = statement(
    update(settings)
    .where(_BY_USER)
    .values(model_settings_json=bindparam("new_settings"), updated_at=bindparam("now"))
)


class UserSettings:
    """The settings of all users; empty by default."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, user_id: str) -> dict[str, Any]:
        row = await self._database.read(lambda tx: tx.fetch_one(_SELECT_SETTINGS, its_user=user_id))
        return {} if row is None else from_json(row[0])

    async def update(
        self, user_id: str, change: Callable[[dict[str, Any]], Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Replace the settings with the result of a function; return the new settings.

        Changes are serialised, so none is lost. The function runs in the transaction and may run
        more than once; if it raises, nothing changes.
        """
        if not user_id:
            raise BadRequest("settings need a user.")

        def write(tx: Transaction) -> dict[str, Any]:
            row = tx.fetch_one(_UPSERT_AND_LOCK, user_id=user_id)
            assert row is not None
            encoded = to_json(change(from_json(row[0])))
            tx.execute(_UPDATE_SETTINGS, its_user=user_id, new_settings=encoded, now=time())
            return from_json(encoded)

        return await self._database.write(write)
