"""How tests fill a store and look into it, where the product has no use for such a method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dodona.core.domain.budgets import Budget, BudgetLine, BudgetUnit, Reservation, TokenRecord
from dodona.core.domain.conversations.contexts import DEFAULT_TOKEN_BUDGET, OracleContext
from dodona.core.domain.conversations.sessions import Session
from dodona.core.domain.notices import StoredNotice
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.ports.model import Usage
from dodona.store import Store, record, reserve, schema, settle
from dodona.store.conversations import contexts, sessions
from dodona.store.db.database import Transaction
from dodona.store.projects.projects import find_project
from tests.conformance.store.saying import rows_of


async def budgets_of(store: Store) -> list[Budget]:
    """All budgets, by period, scope and unit."""
    found = [
        Budget(
            row["scope"],
            row["period"],
            BudgetUnit(row["unit"]),
            row["ceiling"],
            row["used"],
            row["held"],
        )
        for row in await rows_of(store, schema.budgets)
    ]
    return sorted(found, key=lambda each: (each.period, each.scope, each.unit.value))


async def reserve_now(store: Store, lines: Sequence[BudgetLine]) -> Reservation:
    """Reserve for a call outside any run."""
    where: dict[str, Any] = {"run_id": None, "step_key": "", "attempt": 0}
    owner = store.database.owners.current
    return await store.database.write(lambda tx: reserve(tx, lines, **where, owner=owner))


async def settle_now(
    store: Store, reservation: Reservation, *, tokens: int, nanos: int | None
) -> bool:
    return await store.database.write(
        lambda tx: settle(tx, reservation, tokens=tokens, nanos=nanos)
    )


async def add_record(store: Store, entry: TokenRecord) -> None:
    await store.database.write(lambda tx: record(tx, entry, Usage()))


async def records_of(store: Store, user_id: str) -> list[TokenRecord]:
    """The records of a user's calls, oldest first."""
    names = TokenRecord.__dataclass_fields__
    rows = await rows_of(store, schema.token_records)
    return [
        TokenRecord(**{name: row[name] for name in names})
        for row in sorted(rows, key=lambda row: (row["timestamp"], row["id"]))
        if row["user_id"] == user_id
    ]


async def undelivered(store: Store, user_id: str, project_id: str) -> list[StoredNotice]:
    """The notices that are not delivered, oldest first."""
    found = await store.notices.list(user_id, project_id=project_id, limit=1_000)
    return [notice for notice in reversed(found) if notice.delivered_at is None]


async def open_context(
    store: Store, user_id: str, project_id: str, *, token_budget: int = DEFAULT_TOKEN_BUDGET
) -> OracleContext:
    """The context for a question, made if there is none."""

    def open_(tx: Transaction) -> OracleContext:
        find_project(tx, user_id, project_id)
        contexts.check_token_budget(token_budget)
        return contexts.open_context(tx, user_id, project_id, token_budget=token_budget)

    return await store.database.write(open_)


async def open_session(
    store: Store, user_id: str, key: str, *, agent_id: str, project_id: str = DEFAULT_PROJECT
) -> Session:
    """The session for a message, made if there is none."""
    return await store.database.write(
        lambda tx: sessions.open_session(tx, user_id, key, agent_id=agent_id, project_id=project_id)
    )


async def record_call(
    store: Store, user_id: str, run_id: int, *, input_tokens: int, output_tokens: int
) -> None:
    """A call of a run that the meter has settled."""
    entry = TokenRecord(
        user_id, "oracle", "openai", "oak", input_tokens, output_tokens, None, run_id=run_id
    )
    await add_record(store, entry)
