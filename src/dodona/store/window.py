"""The window: the newest runs before a node that fit into a number of tokens.

It walks from the node over its parents and stops at the budget, a summary or the root, so it
costs what it returns, however long the conversation is.
"""

from __future__ import annotations

from sqlalchemy import bindparam, func, literal, select

from dodona.core.conversation import Summary, Window
from dodona.store.database import Row, Transaction
from dodona.store.messages import MESSAGE_COLUMNS, read_message
from dodona.store.schema import messages, runs, summaries
from dodona.store.statements import Statement, statement


def _walk() -> Statement:
    weight = func.coalesce(summaries.c.token_count, runs.c.tokens)
    runs_with_summaries = runs.outerjoin(summaries, summaries.c.run_id == runs.c.id)
    newest = (
        select(
            runs.c.id,
            runs.c.parent_id,
            literal(0).label("depth"),
            weight.label("total"),
            summaries.c.run_id.label("summary"),
        )
        .select_from(runs_with_summaries)
        .where(
            runs.c.id == bindparam("from_id"),
            runs.c.conversation_id == bindparam("conversation_id"),
        )
        .cte("path", recursive=True)
    )
    older = (
        select(
            runs.c.id,
            runs.c.parent_id,
            newest.c.depth + 1,
            newest.c.total + weight,
            summaries.c.run_id,
        )
        .select_from(runs_with_summaries.join(newest, runs.c.id == newest.c.parent_id))
        .where(
            newest.c.summary.is_(None),
            newest.c.total + weight <= bindparam("budget"),
            newest.c.depth + 1 < bindparam("max_runs"),
        )
    )
    path = newest.union_all(older)
    kept = path.outerjoin(messages, (messages.c.run_id == path.c.id) & path.c.summary.is_(None))
    return statement(
        select(path.c.parent_id, path.c.summary, *MESSAGE_COLUMNS)
        .select_from(kept)
        .order_by(path.c.depth.desc(), messages.c.ordinal)
    )


_WALK = _walk()
_SUMMARY = statement(
    select(summaries.c.run_id, summaries.c.content, summaries.c.token_count).where(
        summaries.c.run_id == bindparam("run_id")
    )
)


def read_window(
    tx: Transaction, *, conversation_id: int, from_id: int | None, budget: int, max_runs: int
) -> Window:
    """Whole runs, so that a call and its result stay together; at least the newest."""
    if from_id is None:
        return Window(None, ())
    rows = tx.rows(
        _WALK, from_id=from_id, conversation_id=conversation_id, budget=budget, max_runs=max_runs
    )
    summary = _summary(tx, rows)
    oldest_parent = rows[0][0] if rows else None
    return Window(
        head_id=from_id,
        messages=tuple(read_message(row[2:]) for row in rows if row[2] is not None),
        summary=summary,
        is_cut=summary is None and oldest_parent is not None,
    )


def _summary(tx: Transaction, rows: list[Row]) -> Summary | None:
    if not rows or rows[0][1] is None:
        return None
    found = tx.row(_SUMMARY, run_id=rows[0][1])
    return None if found is None else Summary(*found)
