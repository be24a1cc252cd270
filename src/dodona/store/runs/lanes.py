"""The target of a question: a user's project with its context, its lane, and the settings."""

from __future__ import annotations

from collections.abc import Mapping
from time import time
from typing import Any, Final, NamedTuple

from sqlalchemy import and_, bindparam, exists, select

from dodona.core.domain.conversations.contexts import (
    DEFAULT_TOKEN_BUDGET,
    ContextStatus,
    OracleContext,
)
from dodona.core.domain.notices import StoredNotice
from dodona.core.domain.projects import Project
from dodona.store.conversations.contexts import CONTEXT_COLUMNS, context_from_row
from dodona.store.conversations.window import EMPTY_EXTENT, WindowExtent
from dodona.store.db.database import Row, Transaction
from dodona.store.db.statements import Statement, statement
from dodona.store.db.text import from_json
from dodona.store.notifications.notices import load_run_notices
from dodona.store.projects.projects import PROJECT_COLUMNS, project_from_row
from dodona.store.schema import (
    IS_OPEN,
    IS_UNDELIVERED,
    conversations,
    notices,
    oracle_contexts,
    projects,
    runs,
    settings,
)

_DEFAULT_MAX_RUNS: Final = 30  # in a window, unless the user has set max_context_nodes
_CONTEXT_OFFSET: Final = 14  # the first column of the context in a row


class Lane(NamedTuple):
    """The current state of a conversation's queue.

    `next_window_extent` is the window of the next run that follows the head; None if it is unknown.
    """

    conversation_id: int
    head_id: int | None
    updated_at: float
    is_busy: bool
    next_window_extent: WindowExtent | None


class SubmitTarget(NamedTuple):
    """Where a question is asked. `context` and `lane` are None before the first question."""

    project: Project
    settings: Mapping[str, Any]
    context: OracleContext | None
    lane: Lane | None
    has_undelivered_notices: bool = False

    @property
    def is_open(self) -> bool:
        """Whether there is a context that further questions continue."""
        context = self.context
        return (
            context is not None
            and context.status is not ContextStatus.CLOSED
            and self.lane is not None
        )

    def load_notices(self, tx: Transaction) -> tuple[StoredNotice, ...]:
        """Load the undelivered notices for a run; most targets have none."""
        if not self.has_undelivered_notices:
            return ()
        return load_run_notices(tx, self.project.user_id, self.project.id)

    @property
    def max_window_runs(self) -> int:
        """The most runs that a window holds."""
        limit = self.settings.get("max_context_nodes")
        return limit if type(limit) is int and limit > 0 else _DEFAULT_MAX_RUNS


_head = runs.alias("head")
_is_busy = exists().where(runs.c.conversation_id == conversations.c.id, IS_OPEN)
_HEAD_WINDOW_COLUMNS = (
    *(_head.c.parent_id, _head.c.window_from, _head.c.window_runs, _head.c.window_tokens),
    _head.c.tokens,
)


def _target_statement() -> Statement:
    """Build one query for everything: it is most of the cost of submitting a question."""
    context = and_(
        oracle_contexts.c.user_id == projects.c.user_id,
        oracle_contexts.c.project_id == projects.c.id,
    )
    joined = (
        projects.outerjoin(oracle_contexts, context)
        .outerjoin(conversations, conversations.c.id == oracle_contexts.c.conversation_id)
        .outerjoin(_head, _head.c.id == conversations.c.head_id)
        .outerjoin(settings, settings.c.user_id == projects.c.user_id)
    )
    has_notices = exists().where(
        notices.c.user_id == projects.c.user_id,
        notices.c.project_id == projects.c.id,
        IS_UNDELIVERED,
    )
    columns = (
        *(settings.c.model_settings_json, *PROJECT_COLUMNS),
        *(conversations.c.head_id, conversations.c.updated_at, _is_busy, has_notices),
        *(*_HEAD_WINDOW_COLUMNS, *CONTEXT_COLUMNS),
    )
    is_target = (
        projects.c.user_id == bindparam("its_user"),
        projects.c.id == bindparam("its_project"),
    )
    return statement(select(*columns).select_from(joined).where(*is_target))


_SELECT_TARGET = _target_statement()
_SELECT_LANE = statement(
    select(conversations.c.head_id, conversations.c.updated_at, _is_busy, *_HEAD_WINDOW_COLUMNS)
    .select_from(conversations.outerjoin(_head, _head.c.id == conversations.c.head_id))
    .where(conversations.c.id == bindparam("its_id"))
)
_SELECT_WINDOW_START = statement(select(runs.c.window_from).where(runs.c.id == bindparam("run_id")))
_LOCK_LANE = statement(
    select(conversations.c.id).where(conversations.c.id == bindparam("its_id")).with_for_update()
)
_LOCK_CONTEXT_LANE = statement(
    select(conversations.c.id)
    .join(oracle_contexts, oracle_contexts.c.conversation_id == conversations.c.id)
    .where(
        oracle_contexts.c.user_id == bindparam("its_user"),
        oracle_contexts.c.project_id == bindparam("its_project"),
    )
    .with_for_update(of=conversations)
)


def lock_target(tx: Transaction, user_id: str, project_id: str) -> None:
    """Lock a target against other questions until the transaction ends: first its name.

    There may be no row to lock yet, and all transactions must take the same lock first.
    """
    tx.lock_name(f"{user_id}\n{project_id}")
    tx.lock(_LOCK_CONTEXT_LANE, its_user=user_id, its_project=project_id)


def find_target(tx: Transaction, user_id: str, project_id: str) -> SubmitTarget | None:
    """Load the target for a user's project; None if the project does not exist."""
    row = tx.fetch_one(_SELECT_TARGET, its_user=user_id, its_project=project_id)
    if row is None:
        return None
    has_context = row[_CONTEXT_OFFSET] is not None
    return SubmitTarget(
        project_from_row(user_id, project_id, row[1:5]),
        {} if row[0] is None else from_json(row[0]),
        context_from_row(row[_CONTEXT_OFFSET:]) if has_context else None,
        _lane_from_row(row) if has_context and row[6] is not None else None,
        bool(row[8]),
    )


def _lane_from_row(row: Row) -> Lane:
    return Lane(
        row[_CONTEXT_OFFSET + 3],
        row[5],
        row[6],
        bool(row[7]),
        _next_extent(row[5], *row[9:_CONTEXT_OFFSET]),
    )


def _next_extent(
    head_id: int | None,
    parent_id: int | None,
    oldest: int | None,
    window_runs: int,
    window_tokens: int,
    tokens: int,
) -> WindowExtent | None:
    """Return the window of the head, extended by the head itself."""
    if head_id is None:
        return EMPTY_EXTENT
    if oldest is None and parent_id is not None:
        return None  # it was appended without a run, or driven by an older Dodona
    return WindowExtent(oldest or head_id, window_runs + 1, window_tokens + tokens)


def load_window_start(tx: Transaction, run_id: int) -> int | None:
    """Return the oldest run in the window of a run; None if the run has no window."""
    row = tx.fetch_one(_SELECT_WINDOW_START, run_id=run_id)
    return None if row is None else row[0]


def lock_and_load_lane(tx: Transaction, conversation_id: int) -> Lane:
    """Lock and load the lane of a conversation."""
    tx.lock(_LOCK_LANE, its_id=conversation_id)
    row = tx.fetch_one(_SELECT_LANE, its_id=conversation_id)
    assert row is not None  # the id comes from a row that refers to it
    head_id, updated_at, is_busy, *window = row
    return Lane(conversation_id, head_id, updated_at, bool(is_busy), _next_extent(head_id, *window))


def placeholder_context(
    user_id: str, project_id: str, *, token_budget: int = DEFAULT_TOKEN_BUDGET
) -> OracleContext:
    """Build a context for a run in a conversation without one, such as a session's."""
    return OracleContext(
        *("", user_id, project_id, None, time(), None, None, token_budget, 0, (), None, None),
        status=ContextStatus.ACTIVE,
        compression_count=0,
    )
