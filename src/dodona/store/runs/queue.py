"""Queueing: a message that arrives during a run waits, joins a queued one, or interrupts."""

from __future__ import annotations

from collections.abc import Callable
from time import time
from typing import Any

from sqlalchemy import bindparam, func, select, update

from dodona.core.domain.agents import QueueMode
from dodona.core.domain.conversations.conversation import RunRequest, SubmitReceipt
from dodona.core.errors import LaneFull
from dodona.store.db.database import Transaction
from dodona.store.db.statements import statement
from dodona.store.db.text import from_json, to_json
from dodona.store.runs.lanes import Lane
from dodona.store.schema import IS_OPEN, IS_QUEUED, messages, runs

_COLLECTED_KEY = "collected"  # in a question's metadata: the number of joined messages

_IN_LANE = runs.c.conversation_id == bindparam("lane")
_COUNT_QUEUED = statement(select(func.count()).select_from(runs).where(_IN_LANE, IS_QUEUED))
_SELECT_LAST_QUEUED = statement(
    select(
        *(runs.c.id, runs.c.follows_head, runs.c.session_key, runs.c.origin, messages.c.id),
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
        ended_at=bindparam("now"),
        # They came after the current head, and were not answered.
        parent_id=func.coalesce(runs.c.parent_id, bindparam("head", type_=runs.c.id.type)),
    )
)


def enqueue(
    tx: Transaction, request: RunRequest, lane: Lane, insert_run: Callable[[], int]
) -> SubmitReceipt:
    """Add a question to a busy, locked lane; `insert_run` creates its run."""
    interrupted: tuple[int, ...] = ()
    # A question that branches off needs its own parent: it is neither joined nor interrupts.
    if request.parent_id is None and request.queueing is QueueMode.INTERRUPT:
        interrupted = _interrupt(tx, lane)
    if request.parent_id is None and request.queueing is QueueMode.COLLECT:
        run_id = _append_to_last_queued(tx, request, lane)
        if run_id is not None:
            return SubmitReceipt(run_id, lane.conversation_id, None)
    row = tx.fetch_one(_COUNT_QUEUED, lane=lane.conversation_id)
    assert row is not None
    _check_queue_limit(request, row[0])
    return SubmitReceipt(insert_run(), lane.conversation_id, None, interrupted)


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


def _append_to_last_queued(tx: Transaction, request: RunRequest, lane: Lane) -> int | None:
    """Append the message to the last queued one; None if that differs in more than its text."""
    row = tx.fetch_one(_SELECT_LAST_QUEUED, lane=lane.conversation_id)
    if row is None:
        return None
    run_id, follows_head, session_key, origin, message_id, content, count, metadata_json = row
    metadata: dict[str, Any] = {} if metadata_json is None else from_json(metadata_json)
    number = metadata.pop(_COLLECTED_KEY, 1)
    is_alike = metadata == dict(request.message.metadata or {})
    if not (follows_head and is_alike and (session_key, origin) == _sender(request)):
        return None
    _check_queue_limit(request, number)
    more = request.message.token_count
    tx.execute(
        _UPDATE_QUESTION,
        message_id=message_id,
        new_content=f"{content}\n\n{request.message.content}",
        new_count=count + more,
        new_metadata=to_json({**metadata, _COLLECTED_KEY: number + 1}),
    )
    tx.execute(_ADD_RUN_TOKENS, run_id=run_id, more=more)
    return run_id


def _sender(request: RunRequest) -> tuple[str | None, str]:
    return request.session_key, request.origin
