"""The audit: one record for each call of a model, kept whatever else is deleted."""

from __future__ import annotations

from time import time

from sqlalchemy import bindparam, select

from dodona.core.model import Usage
from dodona.core.spending import TokenRecord
from dodona.store.database import Database, Transaction
from dodona.store.schema import token_records
from dodona.store.statements import insertion, statement
from dodona.store.text import to_json

_FIELDS = (
    *("user_id", "agent_id", "provider", "model", "input_tokens", "output_tokens"),
    *("cost_estimate_usd", "session_key", "run_id", "cache_read_tokens", "cache_write_tokens"),
    *("reasoning_tokens", "estimated", "timestamp"),
)
_ADD = insertion(token_records, *_FIELDS, "usage_json")
_OF_USER = statement(
    select(*(token_records.c[name] for name in _FIELDS))
    .where(
        token_records.c.user_id == bindparam("user_id"),
        token_records.c.timestamp >= bindparam("since"),
    )
    .order_by(token_records.c.timestamp, token_records.c.id)
    .limit(bindparam("limit"))
)


def record(tx: Transaction, entry: TokenRecord, usage: Usage) -> None:
    """Write a record, with the provider's own account of the call."""
    values = {name: getattr(entry, name) for name in _FIELDS}
    values["timestamp"] = entry.timestamp or time()
    tx.run(_ADD, **values, usage_json=to_json(usage.wire) if usage.wire else None)


class Records:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, entry: TokenRecord, usage: Usage) -> None:
        await self._database.write(lambda tx: record(tx, entry, usage))

    async def of_user(
        self, user_id: str, *, since: float = 0.0, limit: int = 1000
    ) -> list[TokenRecord]:
        rows = await self._database.read(
            lambda tx: tx.rows(_OF_USER, user_id=user_id, since=since, limit=limit)
        )
        return [TokenRecord(**dict(zip(_FIELDS, row, strict=True))) for row in rows]
