"""Lists of runs."""

from __future__ import annotations

from typing import Final

from sqlalchemy import bindparam, func, or_, select

from dodona.core.domain.conversations.conversation import RunOverview
from dodona.store.conversations.nodes import NODE_COLUMNS, node_from_row
from dodona.store.db.database import Transaction
from dodona.store.db.statements import statement
from dodona.store.schema import IS_OPEN, IS_QUEUED, conversations, messages, oracle_contexts, runs

_MAX_QUESTION_CHARS: Final = 200
_MAX_ID: Final = 2**62

_SELECT_RUNS = statement(
    select(
        *NODE_COLUMNS,
        conversations.c.project_id,
        func.substr(messages.c.content, 1, _MAX_QUESTION_CHARS),
    )
    .join(conversations, conversations.c.id == runs.c.conversation_id)
    .outerjoin(messages, (messages.c.run_id == runs.c.id) & (messages.c.ordinal == 0))
    .where(
        runs.c.user_id == bindparam("its_user"),
        runs.c.id < bindparam("before"),
        or_(
            bindparam("any_project"),
            conversations.c.project_id == bindparam("its_project"),
        ),
    )
    .order_by(runs.c.id.desc())
    .limit(bindparam("limit"))
)
_SELECT_OPEN_RUNS = statement(
    select(runs.c.id)
    .join(oracle_contexts, oracle_contexts.c.conversation_id == runs.c.conversation_id)
    .where(
        oracle_contexts.c.user_id == bindparam("its_user"),
        oracle_contexts.c.project_id == bindparam("its_project"),
        IS_OPEN,
    )
    .order_by(IS_QUEUED, runs.c.id)
)


def list_runs(
    tx: Transaction, user_id: str, *, project_id: str | None, before: int | None, limit: int
) -> list[RunOverview]:
    """List the runs of a user, newest first."""
    rows = tx.fetch_all(
        _SELECT_RUNS,
        its_user=user_id,
        before=_MAX_ID if before is None else before,
        any_project=project_id is None,
        its_project=project_id or "",
        limit=limit,
    )
    return [RunOverview(node_from_row(row[:-2]), row[-2], row[-1] or "") for row in rows]


def list_open_runs(tx: Transaction, user_id: str, project_id: str) -> list[int]:
    """List the unfinished runs of a context's conversation, in the order of the lane."""
    return [
        row[0] for row in tx.fetch_all(_SELECT_OPEN_RUNS, its_user=user_id, its_project=project_id)
    ]
