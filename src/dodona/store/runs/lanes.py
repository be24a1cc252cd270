"""Where questions are asked: a user's project with its context, its lane, the user's settings."""

from __future__ import annotations

from collections.abc import Mapping
from time import time
from typing import Any, Final, NamedTuple

from sqlalchemy import and_, bindparam, exists, select

from dodona.core.domain.conversations.contexts import TOKEN_BUDGET, ContextStatus, OracleContext
from dodona.core.domain.projects import Project
from dodona.store.conversations.contexts import CONTEXT_COLUMNS, read_context
from dodona.store.conversations.window import NOTHING, WindowExtent
from dodona.store.db.database import Row, Transaction
from dodona.store.db.statements import Statement, statement
from dodona.store.db.text import from_json
from dodona.store.projects.projects import PROJECT_COLUMNS, read_project
from dodona.store.schema import (
    IS_OPEN,
    IS_PENDING,
    conversations,
    notices,
    oracle_contexts,
    projects,
    runs,
    settings,
)

_MOST_RUNS: Final = 30  # in a window, unless the user's max_context_nodes says otherwise
_CONTEXT: Final = 14  # where a row's context begins


class Lane(NamedTuple):
    """The conversation of a context, as it is now.

    `reach` is how far the next run would see that follows the head; None when nobody knows.
    """

    id: int
    head_id: int | None
    updated_at: float
    is_busy: bool
    reach: WindowExtent | None


class AskTarget(NamedTuple):
    """`context` and `lane` are None until the first question."""

    project: Project
    settings: Mapping[str, Any]
    context: OracleContext | None
    lane: Lane | None
    has_notices: bool = False  # that wait to be told

    @property
    def is_open(self) -> bool:
        """Is there a context that questions go on in?"""
        context = self.context
        return (
            context is not None
            and context.status is not ContextStatus.CLOSED
            and self.lane is not None
        )

    @property
    def most_runs(self) -> int:
        """How many runs a window holds at most."""
        wanted = self.settings.get("max_context_nodes")
        return wanted if type(wanted) is int and wanted > 0 else _MOST_RUNS


_head = runs.alias("head")
_is_busy = exists().where(runs.c.conversation_id == conversations.c.id, IS_OPEN)
_SEEN = (
    *(_head.c.parent_id, _head.c.window_from, _head.c.window_runs, _head.c.window_tokens),
    _head.c.tokens,
)


def _read() -> Statement:
    """All of it at once: this is most of what taking a question in costs."""
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
        IS_PENDING,
    )
    columns = (
        *(settings.c.model_settings_json, *PROJECT_COLUMNS),
        *(conversations.c.head_id, conversations.c.updated_at, _is_busy, has_notices),
        *(*_SEEN, *CONTEXT_COLUMNS),
    )
    mine = (projects.c.user_id == bindparam("its_user"), projects.c.id == bindparam("its_project"))
    return statement(select(*columns).select_from(joined).where(*mine))


_READ = _read()
_LANE = statement(
    select(conversations.c.head_id, conversations.c.updated_at, _is_busy, *_SEEN)
    .select_from(conversations.outerjoin(_head, _head.c.id == conversations.c.head_id))
    .where(conversations.c.id == bindparam("its_id"))
)
_HOLD_LANE = statement(
    select(conversations.c.id).where(conversations.c.id == bindparam("its_id")).with_for_update()
)
_HOLD = statement(
    select(conversations.c.id)
    .join(oracle_contexts, oracle_contexts.c.conversation_id == conversations.c.id)
    .where(
        oracle_contexts.c.user_id == bindparam("its_user"),
        oracle_contexts.c.project_id == bindparam("its_project"),
    )
    .with_for_update(of=conversations)
)


def lock_target(tx: Transaction, user_id: str, project_id: str) -> None:
    """Let nobody else ask there until the transaction ends: first the name, then the lane.

    There may be no row to lock yet, and everybody must begin with the same lock.
    """
    tx.lock_name(f"{user_id}\n{project_id}")
    tx.lock(_HOLD, its_user=user_id, its_project=project_id)


def find_place(tx: Transaction, user_id: str, project_id: str) -> AskTarget | None:
    """The place of a user's project; None when there is no such project."""
    row = tx.row(_READ, its_user=user_id, its_project=project_id)
    if row is None:
        return None
    has_context = row[_CONTEXT] is not None
    return AskTarget(
        read_project(user_id, project_id, row[1:5]),
        {} if row[0] is None else from_json(row[0]),
        read_context(row[_CONTEXT:]) if has_context else None,
        _lane(row) if has_context and row[6] is not None else None,
        bool(row[8]),
    )


def _lane(row: Row) -> Lane:
    return Lane(row[_CONTEXT + 3], row[5], row[6], bool(row[7]), _reach(row[5], *row[9:_CONTEXT]))


def _reach(
    head_id: int | None, parent_id: int | None, oldest: int | None, seen: int, before: int, own: int
) -> WindowExtent | None:
    """What the head saw, and the head itself."""
    if head_id is None:
        return NOTHING
    if oldest is None and parent_id is not None:
        return None  # it was never driven: it was appended, or an older Dodona drove it
    return WindowExtent(oldest or head_id, seen + 1, before + own)


def find_lane(tx: Transaction, conversation_id: int) -> Lane:
    """The lane of a conversation, locked."""
    tx.lock(_HOLD_LANE, its_id=conversation_id)
    row = tx.row(_LANE, its_id=conversation_id)
    assert row is not None  # whoever asks has it from a row that refers to it
    head_id, updated_at, is_busy, *seen = row
    return Lane(conversation_id, head_id, updated_at, bool(is_busy), _reach(head_id, *seen))


def session_context(
    user_id: str, project_id: str, *, token_budget: int = TOKEN_BUDGET
) -> OracleContext:
    """For a run in a conversation that no context is about, as those of sessions are."""
    return OracleContext(
        *("", user_id, project_id, None, time(), None, None, token_budget, 0, (), None, None),
        status=ContextStatus.ACTIVE,
        compression_count=0,
    )
