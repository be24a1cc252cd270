"""Submitting questions: each becomes a run in the conversation of its context or session."""

from __future__ import annotations

from dataclasses import replace
from time import time
from typing import Any

from sqlalchemy import bindparam, select, update

from dodona.core.domain.conversations.contexts import ContextStatus, OracleContext
from dodona.core.domain.conversations.conversation import (
    Claim,
    ClaimedRun,
    RunInputs,
    RunRequest,
    SubmitReceipt,
    Window,
)
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.errors import NotFound
from dodona.store.conversations.contexts import open_context, reset_context
from dodona.store.conversations.messages import add_messages, add_question
from dodona.store.conversations.nodes import find_conversation, find_parent
from dodona.store.conversations.sessions import open_session
from dodona.store.conversations.window import EMPTY_EXTENT, WindowExtent, read_next_window
from dodona.store.db.database import Transaction
from dodona.store.db.statements import insert_returning_id, statement
from dodona.store.notifications.notices import load_run_notices
from dodona.store.projects.projects import find_project
from dodona.store.runs.lanes import (
    Lane,
    SubmitTarget,
    find_target,
    lock_and_load_lane,
    lock_target,
    placeholder_context,
)
from dodona.store.runs.queue import enqueue
from dodona.store.schema import oracle_contexts, runs

_COMMON_COLUMNS = (
    *("conversation_id", "user_id", "parent_id", "follows_head", "session_key", "origin"),
    *("tokens", "created_at"),
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
_SELECT_WINDOW_START = statement(select(runs.c.window_from).where(runs.c.id == bindparam("run_id")))


def submit_run(tx: Transaction, request: RunRequest, *, owner: str) -> SubmitReceipt:
    """Create a run for a question; the owner claims it immediately if the lane is free."""
    target = (
        _session_target(tx, request) if request.session_key else _find_or_open_target(tx, request)
    )
    context, lane = target.context, target.lane
    assert context is not None
    assert lane is not None
    if context.status is ContextStatus.SUSPENDED:
        tx.execute(_ACTIVATE_CONTEXT, context_id=context.id)
        context = replace(context, status=ContextStatus.ACTIVE)
    if request.parent_id is not None:
        find_parent(
            tx, find_conversation(tx, request.user_id, lane.conversation_id), request.parent_id
        )
    if lane.is_busy:
        return enqueue(tx, request, lane, lambda: _insert_queued(tx, request, lane))
    claimed = _insert_claimed(tx, request, target, lane, context, owner=owner)
    return SubmitReceipt(claimed.claim.run_id, lane.conversation_id, claimed)


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


def _insert_queued(tx: Transaction, request: RunRequest, lane: Lane) -> int:
    now = time()
    run_id = tx.insert(
        _INSERT_QUEUED, **_row_values(request, lane, now), parent_id=request.parent_id
    )
    keys = {"conversation_id": lane.conversation_id, "run_id": run_id}
    add_messages(tx, [request.message], **keys, first=0, now=now)
    return run_id


def _insert_claimed(
    tx: Transaction,
    request: RunRequest,
    target: SubmitTarget,
    lane: Lane,
    context: OracleContext,
    *,
    owner: str,
) -> ClaimedRun:
    now = time()
    parent_id = lane.head_id if request.parent_id is None else request.parent_id
    window, extent = _load_window(tx, request, target, lane, parent_id, budget=context.token_budget)
    run_id = tx.insert(
        _INSERT_CLAIMED,
        **_row_values(request, lane, now),
        parent_id=parent_id,
        status="running",
        attempt=1,
        owner=owner,
        started_at=now,
        window_from=extent.oldest_run_id,
        window_runs=extent.run_count,
        window_tokens=extent.tokens,
    )
    question = add_question(
        tx, request.message, conversation_id=lane.conversation_id, run_id=run_id, now=now
    )
    cached = request.cached_window if window is None else None
    user_id, project_id = request.user_id, request.project_id
    notices = load_run_notices(tx, user_id, project_id) if target.has_undelivered_notices else ()
    inputs = RunInputs(
        *(question, context, target.project, target.settings, window, lane.updated_at),
        cached_window=cached,
        notices=notices,
        session_key=request.session_key,
        origin=request.origin,
    )
    claim = Claim(run_id, lane.conversation_id, 1, owner, parent_id, started_at=now)
    return ClaimedRun(claim, inputs)


def _row_values(request: RunRequest, lane: Lane, now: float) -> dict[str, Any]:
    return {
        "conversation_id": lane.conversation_id,
        "user_id": request.user_id,
        "follows_head": request.parent_id is None,
        "session_key": request.session_key,
        "origin": request.origin,
        "tokens": request.message.token_count,
        "created_at": now,
    }


def _load_window(
    tx: Transaction,
    request: RunRequest,
    target: SubmitTarget,
    lane: Lane,
    parent_id: int | None,
    *,
    budget: int,
) -> tuple[Window | None, WindowExtent]:
    """Load the history before the question, unless the caller has it cached, and its extent."""
    if parent_id is None:
        return Window(None, ()), EMPTY_EXTENT
    if parent_id != lane.head_id:
        row = tx.fetch_one(_SELECT_WINDOW_START, run_id=parent_id)
        oldest = None if row is None else row[0]
    elif (extent := lane.next_window_extent) is None:
        oldest = None
    else:
        fits = extent.tokens <= budget and extent.run_count <= target.max_window_runs
        if fits and _is_cached_window_current(request, lane):
            return None, extent
        oldest = extent.oldest_run_id
    return read_next_window(
        tx,
        conversation_id=lane.conversation_id,
        parent_id=parent_id,
        oldest=oldest,
        budget=budget,
        max_runs=target.max_window_runs,
    )


def _is_cached_window_current(request: RunRequest, lane: Lane) -> bool:
    cached = request.cached_window
    current = (lane.head_id, lane.updated_at)
    return cached is not None and (cached.head_id, cached.updated_at) == current
