"""The window of a conversation: the newest runs before a node that fit a token budget.

Reading walks from the node over its parents and stops at the budget, a summary or the root, so the
cost depends on the result, not on the length of the conversation.

The window of a run starts where that of its parent started, so that providers can cache the common
prefix. A full window drops to half its size at once, and grows again from there.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import and_, bindparam, func, literal, or_, select

from dodona.core.domain.conversations.conversation import Summary, Window
from dodona.core.domain.trust import decode_marks
from dodona.store.conversations.messages import MESSAGE_COLUMNS, message_from_row
from dodona.store.db.database import Row, Transaction
from dodona.store.db.statements import Statement, statement
from dodona.store.schema import messages, runs, summaries

_UNLIMITED: Final = 2**31 - 1
_NO_RUN: Final = 0
_NO_TIME_LIMIT: Final = float("inf")
_BEFORE_ALL_SUMMARIES: Final = 0.0


class WindowExtent(NamedTuple):
    """The extent of a run's window: the oldest run, the number of runs, and their tokens."""

    oldest_run_id: int | None
    run_count: int
    tokens: int


EMPTY_EXTENT: Final = WindowExtent(None, 0, 0)


class _PathRow(NamedTuple):
    """A run on the path, with one of its messages."""

    run_id: int
    parent_id: int | None
    summary_run_id: int | None
    depth: int
    total: int


_MESSAGE_OFFSET: Final = len(_PathRow._fields)  # the first column of the message in a row


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
            # A summary is not a run: it does not count towards max_runs, and may precede `oldest`.
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
    path_with_messages = path.outerjoin(
        messages, (messages.c.run_id == path.c.id) & path.c.summary.is_(None)
    )
    return statement(
        select(*path.c, *MESSAGE_COLUMNS)
        .select_from(path_with_messages)
        .order_by(path.c.depth.desc(), messages.c.ordinal)
    )


_SELECT_PATH = _path_statement()
_SELECT_SUMMARY = statement(
    select(
        *(summaries.c.run_id, summaries.c.content, summaries.c.token_count),
        *(summaries.c.marks_json, summaries.c.is_private),
    ).where(summaries.c.run_id == bindparam("run_id"))
)


def read_window(
    tx: Transaction, *, conversation_id: int, from_id: int | None, budget: int, max_runs: int
) -> Window:
    """Read a window of complete runs, so that calls and results stay together; at least one."""
    if from_id is None:
        return Window(None, ())
    rows = _fetch_path(tx, conversation_id, from_id, budget=budget, max_runs=max_runs)
    return _build_window(tx, from_id, rows)


def read_history(
    tx: Transaction, *, conversation_id: int, from_id: int | None, max_runs: int
) -> Window:
    """Read the original messages of complete runs, also of those that are summarised."""
    if from_id is None:
        return Window(None, ())
    rows = _fetch_path(tx, conversation_id, from_id, max_runs=max_runs, until=_BEFORE_ALL_SUMMARIES)
    return _build_window(tx, from_id, rows)


def read_next_window(
    tx: Transaction,
    *,
    conversation_id: int,
    parent_id: int,
    oldest: int | None,
    budget: int,
    max_runs: int,
) -> tuple[Window, WindowExtent]:
    """Read the window of a run that starts after a parent, whose own window started at `oldest`."""
    rows = _fetch_path(
        tx, conversation_id, parent_id, budget=budget, max_runs=max_runs, oldest=oldest or _NO_RUN
    )
    if not rows:
        return Window(parent_id, ()), EMPTY_EXTENT
    first = _path_row(rows[0])
    is_full = (
        first.parent_id is not None and first.summary_run_id is None and first.run_id != oldest
    )
    if is_full:
        rows = [row for row in rows if _fits_half(_path_row(row), budget, max_runs)]
        first = _path_row(rows[0])
    return _build_window(tx, parent_id, rows), WindowExtent(
        first.run_id, first.depth + 1, first.total
    )


def reload_window(
    tx: Transaction, *, conversation_id: int, parent_id: int, oldest: int, until: float
) -> Window:
    """Read again the window of a run that started at a time."""
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
    until: float = _NO_TIME_LIMIT,
) -> list[Row]:
    """Fetch a row per message, oldest first, and one for each run without messages."""
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
    summary = (
        None
        if first.summary_run_id is None
        else tx.fetch_one(_SELECT_SUMMARY, run_id=first.summary_run_id)
    )
    return Window(
        head_id,
        tuple(
            [
                message_from_row(row[_MESSAGE_OFFSET:])
                for row in rows
                if row[_MESSAGE_OFFSET] is not None
            ]
        ),
        None if summary is None else _summary_from_row(summary),
        is_truncated=summary is None and first.parent_id is not None,
    )


def _summary_from_row(row: Row) -> Summary:
    run_id, content, token_count, marks_json, is_private = row
    marks = decode_marks(marks_json)
    return Summary(run_id, content, token_count, marks, bool(is_private))
