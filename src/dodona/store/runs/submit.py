"""Questions taken in: each becomes a run of the conversation of its context, or its session."""

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
    SubmittedRun,
    Window,
)
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.errors import NotFound
from dodona.store.conversations.contexts import begin_anew, opened
from dodona.store.conversations.messages import add_messages, add_question
from dodona.store.conversations.nodes import find_conversation, find_parent
from dodona.store.conversations.sessions import open_session
from dodona.store.conversations.window import NOTHING, WindowExtent, next_window
from dodona.store.db.database import Transaction
from dodona.store.db.statements import addition, statement
from dodona.store.notifications.notices import briefed
from dodona.store.projects.projects import find_project
from dodona.store.runs.lanes import (
    AskTarget,
    Lane,
    find_lane,
    find_place,
    lock_target,
    session_context,
)
from dodona.store.runs.queue import enqueue
from dodona.store.schema import oracle_contexts, runs

_NAMES = (
    *("conversation_id", "user_id", "parent_id", "follows_head", "session_key", "origin"),
    *("tokens", "created_at"),
)
_ADD_QUEUED = addition(runs, *_NAMES)
_ADD_RUNNING = addition(
    runs,
    *(*_NAMES, "status", "attempt", "owner", "started_at"),
    *("window_from", "window_runs", "window_tokens"),
)
_WAKE = statement(
    update(oracle_contexts)
    .where(oracle_contexts.c.id == bindparam("context_id"))
    .values(status=ContextStatus.ACTIVE.value)
)
_OLDEST = statement(select(runs.c.window_from).where(runs.c.id == bindparam("run_id")))


def submit_run(tx: Transaction, asking: RunRequest, *, owner: str) -> SubmittedRun:
    """Make a run of a question; the owner drives it at once if nobody is before it."""
    place = _session_place(tx, asking) if asking.session_key else _open_place(tx, asking)
    context, lane = place.context, place.lane
    assert context is not None
    assert lane is not None
    if context.status is ContextStatus.SUSPENDED:
        tx.run(_WAKE, context_id=context.id)
        context = replace(context, status=ContextStatus.ACTIVE)
    if asking.parent is not None:
        find_parent(tx, find_conversation(tx, asking.user_id, lane.id), asking.parent)
    if lane.is_busy:
        return enqueue(tx, asking, lane, lambda: _add_queued(tx, asking, lane))
    driven = _drive(tx, asking, place, lane, context, owner=owner)
    return SubmittedRun(driven.claim.run_id, lane.id, driven)


def _session_place(tx: Transaction, asking: RunRequest) -> AskTarget:
    """Where a message of a session belongs: its conversation, in its user's project."""
    user_id, project_id, key = asking.user_id, asking.project_id, asking.session_key
    assert key is not None
    session = open_session(tx, user_id, key, agent_id=asking.agent_id, project_id=project_id)
    assert session.conversation_id is not None
    lane = find_lane(tx, session.conversation_id)
    found = find_place(tx, user_id, project_id)
    if found is None:
        raise NotFound(f"there is no project {project_id!r:.80}.")
    context = session_context(user_id, project_id, token_budget=asking.token_budget)
    return found._replace(context=replace(context, conversation_id=lane.id), lane=lane)


def _open_place(tx: Transaction, asking: RunRequest) -> AskTarget:
    """Where the question belongs, with an open context, made or begun anew if need be."""
    user_id, project_id = asking.user_id, asking.project_id
    budget, agent_id = asking.token_budget, asking.agent_id
    lock_target(tx, user_id, project_id)
    place = find_place(tx, user_id, project_id)
    if place is None and project_id != DEFAULT_PROJECT:
        raise NotFound(f"there is no project {project_id!r:.80}.")
    if place is not None and place.is_open and not asking.anew:
        return place
    if place is not None and place.context is not None:
        begin_anew(tx, place.context, token_budget=budget, agent_id=agent_id)
    else:
        find_project(tx, user_id, project_id)
        opened(tx, user_id, project_id, token_budget=budget, agent_id=agent_id)
    place = find_place(tx, user_id, project_id)
    assert place is not None
    return place


def _add_queued(tx: Transaction, asking: RunRequest, lane: Lane) -> int:
    now = time()
    run_id = tx.add(_ADD_QUEUED, **_values(asking, lane, now), parent_id=asking.parent)
    where = {"conversation_id": lane.id, "run_id": run_id}
    add_messages(tx, [asking.message], **where, first=0, now=now)
    return run_id


def _drive(
    tx: Transaction,
    asking: RunRequest,
    place: AskTarget,
    lane: Lane,
    context: OracleContext,
    *,
    owner: str,
) -> ClaimedRun:
    now = time()
    parent_id = lane.head_id if asking.parent is None else asking.parent
    window, reach = _window(tx, asking, place, lane, parent_id, budget=context.token_budget)
    run_id = tx.add(
        _ADD_RUNNING,
        **_values(asking, lane, now),
        parent_id=parent_id,
        status="running",
        attempt=1,
        owner=owner,
        started_at=now,
        window_from=reach.oldest,
        window_runs=reach.runs,
        window_tokens=reach.tokens,
    )
    question = add_question(tx, asking.message, conversation_id=lane.id, run_id=run_id, now=now)
    known = asking.known if window is None else None
    told = briefed(tx, asking.user_id, asking.project_id) if place.has_notices else ()
    brief = RunInputs(
        *(question, context, place.project, place.settings, window, lane.updated_at),
        known=known,
        notices=told,
        session_key=asking.session_key,
        origin=asking.origin,
    )
    claim = Claim(run_id, lane.id, 1, owner, parent_id, started_at=now)
    return ClaimedRun(claim, brief)


def _values(asking: RunRequest, lane: Lane, now: float) -> dict[str, Any]:
    return {
        "conversation_id": lane.id,
        "user_id": asking.user_id,
        "follows_head": asking.parent is None,
        "session_key": asking.session_key,
        "origin": asking.origin,
        "tokens": asking.message.token_count,
        "created_at": now,
    }


def _window(
    tx: Transaction,
    asking: RunRequest,
    place: AskTarget,
    lane: Lane,
    parent_id: int | None,
    *,
    budget: int,
) -> tuple[Window | None, WindowExtent]:
    """What came before the question, unless the asker knows that, and how far it reaches."""
    if parent_id is None:
        return Window(None, ()), NOTHING
    if parent_id != lane.head_id:
        row = tx.row(_OLDEST, run_id=parent_id)
        oldest = None if row is None else row[0]
    elif (reach := lane.reach) is None:
        oldest = None
    else:
        fits = reach.tokens <= budget and reach.runs <= place.most_runs
        if fits and _is_known(asking, lane):
            return None, reach
        oldest = reach.oldest
    return next_window(
        tx,
        conversation_id=lane.id,
        parent_id=parent_id,
        oldest=oldest,
        budget=budget,
        max_runs=place.most_runs,
    )


def _is_known(asking: RunRequest, lane: Lane) -> bool:
    known = asking.known
    return (
        known is not None and known.head_id == lane.head_id and known.updated_at == lane.updated_at
    )
