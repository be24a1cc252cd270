"""Submitting questions: each becomes a run in the conversation of its context or session.

A question that arrives during a run waits, joins a queued one, or interrupts.
"""

from __future__ import annotations

from dataclasses import replace
from time import time
from typing import Any, Final

import msgspec
from msgspec import structs
from sqlalchemy import bindparam, func, select, update

from dodona.core.domain.agents import QueueMode
from dodona.core.domain.conversations.contexts import ContextStatus
from dodona.core.domain.conversations.conversation import (
    NO_OPTIONS,
    CachedWindow,
    ClaimedRun,
    NewMessage,
    QueuedRun,
    RunOptions,
    RunRequest,
    Window,
)
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.domain.provenance import NO_PROVENANCE, Provenance
from dodona.core.domain.trust import question_marks
from dodona.core.errors import LaneFull, NotFound
from dodona.store.conversations.contexts import open_context, reset_context
from dodona.store.conversations.messages import add_messages, add_question
from dodona.store.conversations.nodes import find_conversation, find_parent
from dodona.store.conversations.sessions import open_session
from dodona.store.conversations.window import EMPTY_EXTENT, WindowExtent, read_next_window
from dodona.store.db.database import Transaction
from dodona.store.db.statements import insert_returning_id, statement
from dodona.store.db.text import to_json
from dodona.store.projects.projects import find_project
from dodona.store.runs.lanes import (
    Lane,
    SubmitTarget,
    find_target,
    load_window_start,
    lock_and_load_lane,
    lock_target,
    placeholder_context,
)
from dodona.store.schema import IS_OPEN, IS_QUEUED, messages, oracle_contexts, runs

_COMMON_COLUMNS = (
    *("conversation_id", "user_id", "parent_id", "follows_head", "session_key", "origin"),
    *("token_id", "tokens", "created_at"),
)
_INSERT_QUEUED = insert_returning_id(runs, *_COMMON_COLUMNS)
_INSERT_CLAIMED = insert_returning_id(
    runs,
    *(*_COMMON_COLUMNS, "status", "attempt", "owner", "started_at"),
    *("window_from", "window_runs", "window_tokens"),
)
_ACTIVATE_CONTEXT = statement(
    update(oracle_contexts)
    .where(oracle_contexts.c.id == bindparam("context_id"))
    .values(status=ContextStatus.ACTIVE.value)
)
_IN_LANE = runs.c.conversation_id == bindparam("lane")
_COUNT_QUEUED = statement(select(func.count()).select_from(runs).where(_IN_LANE, IS_QUEUED))
_SELECT_LAST_QUEUED = statement(
    select(
        *(runs.c.id, runs.c.follows_head, runs.c.session_key, runs.c.origin, runs.c.token_id),
        messages.c.id,
        *(messages.c.content, messages.c.token_count, messages.c.metadata),
    )
    .join(messages, (messages.c.run_id == runs.c.id) & (messages.c.ordinal == 0))
    .where(_IN_LANE, IS_QUEUED)
    .order_by(runs.c.id.desc())
    .limit(1)
)
_UPDATE_QUESTION = statement(
    update(messages)
    .where(messages.c.id == bindparam("message_id"))
    .values(
        content=bindparam("new_content"),
        token_count=bindparam("new_count"),
        metadata=bindparam("new_metadata"),
    )
)
_ADD_RUN_TOKENS = statement(
    update(runs)
    .where(runs.c.id == bindparam("run_id"))
    .values(tokens=runs.c.tokens + bindparam("more"))
)
_REQUEST_CANCEL_ALL = statement(
    update(runs)
    .where(_IN_LANE, IS_OPEN)
    .values(cancel_requested_at=func.coalesce(runs.c.cancel_requested_at, bindparam("now")))
    .returning(runs.c.id)
)
_CANCEL_ALL_QUEUED = statement(
    update(runs)
    .where(_IN_LANE, IS_QUEUED)
    .values(
        status="cancelled",
        termination_reason="cancelled",
        ended_at=bindparam("now"),
        # They came after the current head, and were not answered.
        parent_id=func.coalesce(runs.c.parent_id, bindparam("head", type_=runs.c.id.type)),
    )
)


def build_question(request: RunRequest) -> NewMessage:
    """Build the message that stores a question, its options and its marks."""
    provenance = Provenance(question_marks(request.origin, request.session_key))
    record = _QuestionRecord(request.options, provenance=provenance)
    metadata = None if record == _PLAIN_QUESTION else to_json(record)
    return NewMessage("user", request.question, request.token_count, metadata)


class _QuestionRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The metadata of a question; `collected` is the number of joined messages."""

    options: RunOptions = NO_OPTIONS
    collected: int = 1
    provenance: Provenance = NO_PROVENANCE


_PLAIN_QUESTION: Final = _QuestionRecord()


def _read_record(metadata: str | None) -> _QuestionRecord:
    return msgspec.json.decode(metadata or "{}", type=_QuestionRecord)


def read_options(metadata: str | None) -> RunOptions:
    """Read the options in the metadata of a question."""
    return _read_record(metadata).options


def submit_run(
    tx: Transaction, request: RunRequest, question: NewMessage, *, owner: str
) -> ClaimedRun | QueuedRun:
    """Create a run for a question; the owner claims it immediately if the lane is free."""
    target = (
        _session_target(tx, request) if request.session_key else _find_or_open_target(tx, request)
    )
    context, lane = target.context, target.lane
    assert context is not None
    assert lane is not None
    context.check_size(request.token_count, session_key=request.session_key)
    if context.status is ContextStatus.SUSPENDED:
        tx.execute(_ACTIVATE_CONTEXT, context_id=context.id)
        target = target._replace(context=replace(context, status=ContextStatus.ACTIVE))
    if request.parent_id is not None:
        find_parent(
            tx, find_conversation(tx, request.user_id, lane.conversation_id), request.parent_id
        )
    if lane.is_busy:
        return _enqueue(tx, request, question, lane)
    return _insert_claimed(tx, request, question, target, owner=owner)


def _session_target(tx: Transaction, request: RunRequest) -> SubmitTarget:
    """Return the target of a session's message: its conversation, in its user's project."""
    user_id, project_id, key = request.user_id, request.project_id, request.session_key
    assert key is not None
    session = open_session(tx, user_id, key, agent_id=request.agent_id, project_id=project_id)
    assert session.conversation_id is not None
    lane = lock_and_load_lane(tx, session.conversation_id)
    target = find_target(tx, user_id, project_id)
    if target is None:
        raise NotFound(f"there is no project {project_id!r:.80}.")
    context = placeholder_context(user_id, project_id, token_budget=request.token_budget)
    return target._replace(
        context=replace(context, conversation_id=lane.conversation_id), lane=lane
    )


def _find_or_open_target(tx: Transaction, request: RunRequest) -> SubmitTarget:
    """Return the target of a question with an open context, which is created if needed."""
    user_id, project_id = request.user_id, request.project_id
    budget, agent_id = request.token_budget, request.agent_id
    lock_target(tx, user_id, project_id)
    target = find_target(tx, user_id, project_id)
    if target is None and project_id != DEFAULT_PROJECT:
        raise NotFound(f"there is no project {project_id!r:.80}.")
    if target is not None and target.is_open and not request.new_conversation:
        return target
    if target is not None and target.context is not None:
        reset_context(tx, target.context, token_budget=budget, agent_id=agent_id)
    else:
        find_project(tx, user_id, project_id)
        open_context(tx, user_id, project_id, token_budget=budget, agent_id=agent_id)
    target = find_target(tx, user_id, project_id)
    assert target is not None
    return target


def _insert_claimed(
    tx: Transaction,
    request: RunRequest,
    question: NewMessage,
    target: SubmitTarget,
    *,
    owner: str,
) -> ClaimedRun:
    now = time()
    context, lane = target.context, target.lane
    assert context is not None
    assert lane is not None
    parent_id = lane.head_id if request.parent_id is None else request.parent_id
    budget = context.history_budget(request.token_count)
    window, extent = _load_window(tx, request, target, lane, parent_id, budget=budget)
    run_id = tx.insert(
        _INSERT_CLAIMED,
        conversation_id=lane.conversation_id,
        user_id=request.user_id,
        parent_id=parent_id,
        follows_head=request.parent_id is None,
        session_key=request.session_key,
        origin=request.origin,
        token_id=request.token_id,
        tokens=request.token_count,
        created_at=now,
        status="running",
        attempt=1,
        owner=owner,
        started_at=now,
        window_from=extent.oldest_run_id,
        window_runs=extent.run_count,
        window_tokens=extent.tokens,
    )
    stored = add_question(
        tx, question, conversation_id=lane.conversation_id, run_id=run_id, now=now
    )
    return ClaimedRun(
        *(run_id, lane.conversation_id, 1, owner, parent_id),
        question=stored,
        options=read_options(stored.metadata),
        context=context,
        project=target.project,
        settings=target.settings,
        window=window,
        started_at=now,
        notices=target.load_notices(tx),
        session_key=request.session_key,
        token=request.token,
        origin=request.origin,
    )


def _load_window(
    tx: Transaction,
    request: RunRequest,
    target: SubmitTarget,
    lane: Lane,
    parent_id: int | None,
    *,
    budget: int,
) -> tuple[Window | CachedWindow, WindowExtent]:
    """Load the history before the question, unless the caller has it cached, and its extent."""
    if parent_id is None:
        return Window(None, ()), EMPTY_EXTENT
    if parent_id != lane.head_id:
        oldest = load_window_start(tx, parent_id)
    elif (extent := lane.next_window_extent) is None:
        oldest = None
    else:
        fits = extent.tokens <= budget and extent.run_count <= target.max_window_runs
        cached = request.cached_window
        if fits and cached is not None and cached.is_current(lane.head_id, lane.updated_at):
            return cached, extent
        oldest = extent.oldest_run_id
    return read_next_window(
        tx,
        conversation_id=lane.conversation_id,
        parent_id=parent_id,
        oldest=oldest,
        budget=budget,
        max_runs=target.max_window_runs,
    )


# -- queueing ------------------------------------------------------------------------------------


def _enqueue(tx: Transaction, request: RunRequest, question: NewMessage, lane: Lane) -> QueuedRun:
    """Add a question to a busy, locked lane."""
    conversation_id = lane.conversation_id
    interrupted: tuple[int, ...] = ()
    # A question that branches off needs its own parent: it is neither joined nor interrupts.
    if request.parent_id is None and request.queueing is QueueMode.INTERRUPT:
        interrupted = _interrupt(tx, lane)
    if request.parent_id is None and request.queueing is QueueMode.COLLECT:
        run_id = _append_to_last_queued(tx, request, question, lane)
        if run_id is not None:
            return QueuedRun(run_id, conversation_id)
    row = tx.fetch_one(_COUNT_QUEUED, lane=conversation_id)
    assert row is not None
    _check_queue_limit(request, row[0])
    run_id = insert_queued(
        tx,
        question,
        conversation_id=conversation_id,
        user_id=request.user_id,
        parent_id=request.parent_id,
        session_key=request.session_key,
        origin=request.origin,
        token_id=request.token_id,
    )
    return QueuedRun(run_id, conversation_id, interrupted)


def insert_queued(
    tx: Transaction,
    question: NewMessage,
    *,
    conversation_id: int,
    parent_id: int | None,
    **row: Any,
) -> int:
    """Insert a queued run with its question; without a parent, it will follow the head."""
    now = time()
    run_id = tx.insert(
        _INSERT_QUEUED,
        **row,
        conversation_id=conversation_id,
        parent_id=parent_id,
        follows_head=parent_id is None,
        tokens=question.token_count,
        created_at=now,
    )
    add_messages(tx, [question], conversation_id=conversation_id, run_id=run_id, first=0, now=now)
    return run_id


def _check_queue_limit(request: RunRequest, queued: int) -> None:
    if queued >= request.queue_limit:
        raise LaneFull(
            f"{queued} messages of this conversation are already queued.",
            hint="Wait for some of them, cancel them, or raise queue_limit of the agent.",
        )


def _interrupt(tx: Transaction, lane: Lane) -> tuple[int, ...]:
    now = time()
    rows = tx.fetch_all(_REQUEST_CANCEL_ALL, lane=lane.conversation_id, now=now)
    tx.execute(_CANCEL_ALL_QUEUED, lane=lane.conversation_id, now=now, head=lane.head_id)
    return tuple(row[0] for row in rows)


def _append_to_last_queued(
    tx: Transaction, request: RunRequest, question: NewMessage, lane: Lane
) -> int | None:
    """Append the message to the last queued one; None if that differs in more than its text."""
    row = tx.fetch_one(_SELECT_LAST_QUEUED, lane=lane.conversation_id)
    if row is None:
        return None
    run_id, follows_head, *source, message_id, content, count, metadata = row
    record = _read_record(metadata)
    is_alike = record.options == read_options(question.metadata)
    # Another token has its own budget, and may not be allowed the same models.
    if not (
        follows_head
        and is_alike
        and source == [request.session_key, request.origin, request.token_id]
    ):
        return None
    _check_queue_limit(request, record.collected)
    more = question.token_count
    tx.execute(
        _UPDATE_QUESTION,
        message_id=message_id,
        new_content=f"{content}\n\n{question.content}",
        new_count=count + more,
        new_metadata=to_json(structs.replace(record, collected=record.collected + 1)),
    )
    tx.execute(_ADD_RUN_TOKENS, run_id=run_id, more=more)
    return run_id
