"""The window: the newest runs before a node that fit into a number of tokens.

It walks from the node over its parents and stops at the budget, a summary or the root, so it
costs what it returns, however long the conversation is.

The window of a run begins where that of its parent began, so that models are sent the same
beginning again. When it is full it drops to half at once, and from there on grows again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import and_, bindparam, func, literal, or_, select

from dodona.core.domain.conversations.conversation import Summary, Window
from dodona.store.conversations.messages import MESSAGE_COLUMNS, message_from_row
from dodona.store.db.database import Row, Transaction
from dodona.store.db.statements import Statement, statement
from dodona.store.schema import messages, runs, summaries

_UNLIMITED: Final = 2**31 - 1  # more than any window holds
_NO_RUN: Final = 0
_NEVER: Final = float("inf")


class WindowExtent(NamedTuple):
    """How far a run sees: the oldest run before it, how many they are, their tokens."""

    oldest: int | None
    runs: int
    tokens: int


EMPTY_EXTENT: Final = WindowExtent(None, 0, 0)


class _PathRow(NamedTuple):
    """A run on the way back, with one of its messages."""

    run_id: int
    parent_id: int | None
    summary: int | None
    depth: int
    total: int


_MESSAGE_OFFSET: Final = len(_PathRow._fields)  # where a row's message begins


def _path_statement() -> Statement:
    weight = func.coalesce(summaries.c.token_count, runs.c.tokens)
    runs_with_summaries = runs.outerjoin(
        summaries,
        (summaries.c.run_id == runs.c.id) & (summaries.c.created_at <= bindparam("until")),
    )
    newest = (
        select(
            runs.c.id,
            runs.c.parent_id,
            summaries.c.run_id.label("summary"),
            literal(0).label("depth"),
            weight.label("total"),
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
            summaries.c.run_id,
            newest.c.depth + 1,
            newest.c.total + weight,
        )
        .select_from(runs_with_summaries.join(newest, runs.c.id == newest.c.parent_id))
        .where(
            newest.c.summary.is_(None),
            newest.c.total + weight <= bindparam("budget"),
            # A summary is no run: it comes with any number of them, and before the oldest.
            or_(
                summaries.c.run_id.is_not(None),
                and_(
                    newest.c.id != bindparam("oldest"),
                    newest.c.depth + 1 < bindparam("max_runs"),
                ),
            ),
        )
    )
    path = newest.union_all(older)
    kept = path.outerjoin(messages, (messages.c.run_id == path.c.id) & path.c.summary.is_(None))
    return statement(
        select(*path.c, *MESSAGE_COLUMNS)
        .select_from(kept)
        .order_by(path.c.depth.desc(), messages.c.ordinal)
    )


_SELECT_PATH = _path_statement()
_SELECT_SUMMARY = statement(
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
    rows = _fetch_path(tx, conversation_id, from_id, budget=budget, max_runs=max_runs)
    return _build_window(tx, from_id, rows)


def next_window(
    tx: Transaction,
    *,
    conversation_id: int,
    parent_id: int,
    oldest: int | None,
    budget: int,
    max_runs: int,
) -> tuple[Window, WindowExtent]:
    """What a run sees that begins now after a parent; `oldest` is what that one saw first."""
    rows = _fetch_path(
        tx, conversation_id, parent_id, budget=budget, max_runs=max_runs, oldest=oldest or _NO_RUN
    )
    if not rows:
        return Window(parent_id, ()), EMPTY_EXTENT
    first = _path_row(rows[0])
    is_full = first.parent_id is not None and first.summary is None and first.run_id != oldest
    if is_full:
        rows = [row for row in rows if _fits_half(_path_row(row), budget, max_runs)]
        first = _path_row(rows[0])
    return _build_window(tx, parent_id, rows), WindowExtent(
        first.run_id, first.depth + 1, first.total
    )


def reload_window(
    tx: Transaction, *, conversation_id: int, parent_id: int, oldest: int, until: float
) -> Window:
    """What a run saw that began at a time, read again."""
    rows = _fetch_path(tx, conversation_id, parent_id, oldest=oldest, until=until)
    return _build_window(tx, parent_id, rows)


def _fetch_path(
    tx: Transaction,
    conversation_id: int,
    from_id: int,
    *,
    budget: int = _UNLIMITED,
    max_runs: int = _UNLIMITED,
    oldest: int = _NO_RUN,
    until: float = _NEVER,
) -> list[Row]:
    """A row for each message, the oldest first; runs without any have a row too."""
    return tx.fetch_all(
        _SELECT_PATH,
        from_id=from_id,
        conversation_id=conversation_id,
        budget=budget,
        max_runs=max_runs,
        oldest=oldest,
        until=until,
    )


def _path_row(row: Row) -> _PathRow:
    return _PathRow._make(row[:_MESSAGE_OFFSET])


def _fits_half(row: _PathRow, budget: int, max_runs: int) -> bool:
    return row.depth == 0 or (row.total * 2 <= budget and (row.depth + 1) * 2 <= max_runs)


def _build_window(tx: Transaction, head_id: int, rows: list[Row]) -> Window:
    if not rows:
        return Window(head_id, ())
    first = _path_row(rows[0])
    found = None if first.summary is None else tx.fetch_one(_SELECT_SUMMARY, run_id=first.summary)
    return Window(
        head_id,
        tuple(
            [
                message_from_row(row[_MESSAGE_OFFSET:])
                for row in rows
                if row[_MESSAGE_OFFSET] is not None
            ]
        ),
        None if found is None else Summary(*found),
        is_truncated=found is None and first.parent_id is not None,
    )
