"""A message that comes while another is answered waits, joins those that wait, or interrupts."""

from __future__ import annotations

from collections.abc import Callable
from time import time
from typing import Any

from sqlalchemy import bindparam, func, select, update

from dodona.core.domain.agents import Queueing
from dodona.core.domain.conversations.conversation import RunRequest, SubmittedRun
from dodona.core.errors import LaneFull
from dodona.store.db.database import Transaction
from dodona.store.db.statements import statement
from dodona.store.db.text import from_json, to_json
from dodona.store.runs.lanes import Lane
from dodona.store.schema import IS_OPEN, IS_QUEUED, messages, runs

_COLLECTED = "collected"  # in a question's metadata: how many messages it is made of

_IN_LANE = runs.c.conversation_id == bindparam("lane")
_WAITING = statement(select(func.count()).select_from(runs).where(_IN_LANE, IS_QUEUED))
_LAST = statement(
    select(
        *(runs.c.id, runs.c.follows_head, runs.c.session_key, runs.c.origin, messages.c.id),
        *(messages.c.content, messages.c.token_count, messages.c.metadata),
    )
    .join(messages, (messages.c.run_id == runs.c.id) & (messages.c.ordinal == 0))
    .where(_IN_LANE, IS_QUEUED)
    .order_by(runs.c.id.desc())
    .limit(1)
)
_SAY = statement(
    update(messages)
    .where(messages.c.id == bindparam("message_id"))
    .values(
        content=bindparam("new_content"),
        token_count=bindparam("new_count"),
        metadata=bindparam("new_metadata"),
    )
)
_GROW = statement(
    update(runs)
    .where(runs.c.id == bindparam("run_id"))
    .values(tokens=runs.c.tokens + bindparam("more"))
)
_ASK_ALL = statement(
    update(runs)
    .where(_IN_LANE, IS_OPEN)
    .values(cancel_requested_at=func.coalesce(runs.c.cancel_requested_at, bindparam("now")))
    .returning(runs.c.id)
)
_CANCEL_ALL = statement(
    update(runs)
    .where(_IN_LANE, IS_QUEUED)
    .values(
        status="cancelled",
        ended_at=bindparam("now"),
        # They were said after what is the head now, and were not answered.
        parent_id=func.coalesce(runs.c.parent_id, bindparam("head", type_=runs.c.id.type)),
    )
)


def enqueue(
    tx: Transaction, asking: RunRequest, lane: Lane, add: Callable[[], int]
) -> SubmittedRun:
    """Take a question into a lane that is busy, and held; `add` makes a run of it."""
    interrupted: tuple[int, ...] = ()
    # Who branches off means just that place: it stands in line by itself.
    if asking.parent is None and asking.queueing is Queueing.INTERRUPT:
        interrupted = _interrupt(tx, lane)
    if asking.parent is None and asking.queueing is Queueing.COLLECT:
        joined = _join(tx, asking, lane)
        if joined is not None:
            return SubmittedRun(joined, lane.id, None)
    row = tx.row(_WAITING, lane=lane.id)
    assert row is not None
    _check(asking, row[0])
    return SubmittedRun(add(), lane.id, None, interrupted)


def _check(asking: RunRequest, waiting: int) -> None:
    if waiting >= asking.queue_limit:
        raise LaneFull(
            f"{waiting} messages of this conversation wait for an answer already.",
            hint="Wait for some of them, or cancel them. queue_limit of the agent allows more.",
        )


def _interrupt(tx: Transaction, lane: Lane) -> tuple[int, ...]:
    now = time()
    asked = tx.rows(_ASK_ALL, lane=lane.id, now=now)
    tx.run(_CANCEL_ALL, lane=lane.id, now=now, head=lane.head_id)
    return tuple(row[0] for row in asked)


def _join(tx: Transaction, asking: RunRequest, lane: Lane) -> int | None:
    """Say it together with the last one that waits; None where that asks for something else."""
    row = tx.row(_LAST, lane=lane.id)
    if row is None:
        return None
    run_id, follows_head, session_key, origin, message_id, content, count, kept = row
    before: dict[str, Any] = {} if kept is None else from_json(kept)
    number = before.pop(_COLLECTED, 1)
    is_alike = before == dict(asking.message.metadata or {})
    if not (follows_head and is_alike and (session_key, origin) == _whose(asking)):
        return None
    _check(asking, number)
    more = asking.message.token_count
    tx.run(
        _SAY,
        message_id=message_id,
        new_content=f"{content}\n\n{asking.message.content}",
        new_count=count + more,
        new_metadata=to_json({**before, _COLLECTED: number + 1}),
    )
    tx.run(_GROW, run_id=run_id, more=more)
    return run_id


def _whose(asking: RunRequest) -> tuple[str | None, str]:
    return asking.session_key, asking.origin
