"""The settings of each user, as JSON; what they mean is not known here."""

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
        # The update changes nothing: it locks the row, until the end of the transaction.
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
    """The settings of all users. Who has set nothing has none."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, user_id: str) -> dict[str, Any]:
        row = await self._database.read(lambda tx: tx.fetch_one(_SELECT_SETTINGS, its_user=user_id))
        return {} if row is None else from_json(row[0])

    async def update(
        self, user_id: str, change: Callable[[dict[str, Any]], Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Replace the settings by what a function makes of them; the settings after that.

        Changes come one after the other, so none undoes another unseen. The function runs in the
        transaction, more than once perhaps; when it raises, all stays as it was.
        """
        if not user_id:
            raise BadRequest("settings need a user.")

        def write(tx: Transaction) -> dict[str, Any]:
            row = tx.fetch_one(_UPSERT_AND_LOCK, user_id=user_id)
            assert row is not None
            changed = to_json(change(from_json(row[0])))
            tx.execute(_UPDATE_SETTINGS, its_user=user_id, new_settings=changed, now=time())
            return from_json(changed)

        return await self._database.write(write)
