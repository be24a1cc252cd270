"""Runs: accepted, claimed by one process at a time, ended once.

The lane of a conversation is a unique index: at most one run of it is running or waiting. Each
claim raises the run's `attempt`, and whoever writes for a run must name the attempt it holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from time import time
from typing import Any, Literal

from sqlalchemy import bindparam, func, select, update

from dodona.core.conversation import (
    Busy,
    Claim,
    NewMessage,
    RunNode,
    RunStatus,
    StoredMessage,
)
from dodona.core.errors import BadRequest, Fenced, NotFound
from dodona.store.budgets import settle_cut
from dodona.store.conversations import HEAD, move_head
from dodona.store.database import Database, Operation, Transaction
from dodona.store.messages import MESSAGE_COLUMNS, add_messages, check_messages, read_message
from dodona.store.nodes import NODE_COLUMNS, find_conversation, find_node, find_parent, read_node
from dodona.store.owners import told
from dodona.store.schema import IS_OPEN, IS_QUEUED, conversations, messages, runs
from dodona.store.statements import insertion, statement
from dodona.store.text import Hide, changed, to_json

_THIS = runs.c.id == bindparam("run_id")
_HELD = (_THIS, runs.c.attempt == bindparam("held"), runs.c.status == "running")

_ACCEPT = insertion(
    runs,
    *("conversation_id", "parent_id", "follows_head", "session_key", "origin", "tokens"),
    "created_at",
    returning="id",
)
_FIRST_OPEN = statement(
    select(*NODE_COLUMNS, runs.c.follows_head)
    .where(runs.c.conversation_id == bindparam("conversation_id"), IS_OPEN)
    .order_by(IS_QUEUED, runs.c.id)
    .limit(1)
)
_LOCK_LANE = statement(
    select(conversations.c.head_id)
    .where(conversations.c.id == bindparam("conversation_id"))
    .with_for_update()
)
_CLAIM = statement(
    update(runs)
    .where(_THIS)
    .values(
        status="running",
        owner=bindparam("new_owner"),
        attempt=runs.c.attempt + 1,
        parent_id=bindparam("new_parent"),
        started_at=func.coalesce(runs.c.started_at, bindparam("now")),
    )
    .returning(runs.c.attempt)
)
_CHECK = statement(select(runs.c.id).where(*_HELD).with_for_update())
_PIN = statement(update(runs).where(*_HELD).values(pins_hash=bindparam("new_pins")))
_WAIT = statement(update(runs).where(*_HELD).values(status="waiting", owner=None))
_END = statement(
    update(runs)
    .where(*_HELD)
    .values(
        status=bindparam("new_status"),
        owner=None,
        error_json=bindparam("new_error"),
        tokens=runs.c.tokens + bindparam("added"),
        ended_at=bindparam("now"),
    )
    .returning(runs.c.parent_id)
)
_ASK_CANCEL = statement(
    update(runs)
    .where(_THIS, IS_OPEN)
    .values(cancel_requested_at=func.coalesce(runs.c.cancel_requested_at, bindparam("now")))
)
_CANCEL_QUEUED = statement(
    update(runs)
    .where(_THIS, IS_QUEUED)
    .values(
        status="cancelled",
        ended_at=bindparam("now"),
        parent_id=func.coalesce(runs.c.parent_id, bindparam("head", type_=runs.c.id.type)),
    )
)
_ALL_OPEN = statement(select(*NODE_COLUMNS).where(IS_OPEN).order_by(runs.c.conversation_id))
_COUNT = statement(
    select(func.count()).where(messages.c.run_id == bindparam("run_id")).select_from(messages)
)
_MESSAGES = statement(
    select(*MESSAGE_COLUMNS)
    .where(messages.c.run_id == bindparam("run_id"))
    .order_by(messages.c.ordinal)
)


class Runs:
    """The runs of all conversations."""

    def __init__(self, database: Database, *, hide: Hide) -> None:
        self._database = database
        self._hide = hide
        self._driven: set[int] = set()  # by this process; the others' are in the database

    async def accept(
        self,
        user_id: str,
        conversation_id: int,
        message: NewMessage,
        *,
        parent: int | Literal["head"] = HEAD,
        session_key: str | None = None,
        origin: str = "user",
    ) -> RunNode:
        """Take a message in: from now on it will be answered, whatever happens to the process.

        It goes on from the head at the time when it is its turn, or from a given node.
        """
        check_messages([message])
        now = time()

        def accept(tx: Transaction) -> RunNode:
            conversation = find_conversation(tx, user_id, conversation_id, lock=True)
            if parent != HEAD:
                find_parent(tx, conversation, parent)
            row = tx.row(
                _ACCEPT,
                conversation_id=conversation_id,
                parent_id=None if parent == HEAD else parent,
                follows_head=parent == HEAD,
                session_key=session_key,
                origin=origin,
                tokens=message.token_count,
                created_at=now,
            )
            assert row is not None
            where = {"conversation_id": conversation_id, "run_id": row[0]}
            add_messages(tx, [message], **where, first=0, now=now)
            return find_node(tx, user_id, row[0])

        return await self._database.write(accept)

    async def claim(
        self, conversation_id: int, *, waking: int | None = None
    ) -> Claim | Busy | None:
        """The next run of a lane, to be driven by this process; None when nothing waits there.

        A run whose process died comes first, then the oldest that is queued. A waiting run
        is claimed by whoever wakes it.
        """
        claiming = asyncio.ensure_future(
            self._database.write(lambda tx: self._claim(tx, conversation_id, waking))
        )
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            claiming.add_done_callback(self._give_back)
            raise

    def _give_back(self, claiming: asyncio.Future[Claim | Busy | None]) -> None:
        """Whoever wanted it was cancelled: nobody drives it."""
        if not claiming.cancelled() and claiming.exception() is None:
            claimed = claiming.result()
            if isinstance(claimed, Claim):
                self.abandon(claimed)

    def _claim(
        self, tx: Transaction, conversation_id: int, waking: int | None
    ) -> Claim | Busy | None:
        lane = tx.row(_LOCK_LANE, conversation_id=conversation_id)
        if lane is None:
            raise NotFound(f"there is no conversation {conversation_id}.")
        row = tx.row(_FIRST_OPEN, conversation_id=conversation_id)
        if row is None:
            return None
        node, follows_head = read_node(row[:-1]), row[-1]
        if (busy := self._busy(tx, node, waking)) is not None:
            return busy
        parent_id = lane[0] if follows_head and not node.attempt else node.parent_id
        claim = self._take(tx, node, parent_id)
        if claim.is_resumed:
            settle_cut(tx, node.id)
        # At once, for the next one who asks may be in this process too. If the commit fails,
        # the run is not ours in the database, and this says nothing.
        self._driven.add(node.id)
        return claim

    def _busy(self, tx: Transaction, node: RunNode, waking: int | None) -> Busy | None:
        if node.status is RunStatus.WAITING and node.id != waking:
            return Busy(node.id, node.status, None, "a person who was asked")
        if node.owner is not None and self._is_driven(tx, node):
            return Busy(node.id, node.status, node.owner, told(node.owner))
        return None

    def _is_driven(self, tx: Transaction, node: RunNode) -> bool:
        owners, owner = self._database.owners, node.owner
        if owner == owners.me:
            return node.id in self._driven
        return owner is not None and owners.is_alive(owner, tx)

    def _take(self, tx: Transaction, node: RunNode, parent_id: int | None) -> Claim:
        me = self._database.owners.me
        taken = tx.row(_CLAIM, run_id=node.id, new_owner=me, new_parent=parent_id, now=time())
        assert taken is not None
        return Claim(
            run_id=node.id,
            conversation_id=node.conversation_id,
            attempt=taken[0],
            owner=me,
            cancel_requested=node.cancel_requested_at is not None,
        )

    def abandon(self, claim: Claim) -> None:
        """This process drives the run no longer, though it has not ended: it may be claimed."""
        self._driven.discard(claim.run_id)

    async def open_lanes(self) -> list[int]:
        """The conversations in which a run could be claimed: what to look at after a start."""

        def lanes(tx: Transaction) -> list[int]:
            nodes = [read_node(row) for row in tx.rows(_ALL_OPEN)]
            blocked = {n.conversation_id for n in nodes if self._busy(tx, n, None) is not None}
            return sorted({node.conversation_id for node in nodes} - blocked)

        # On PostgreSQL a look at an owner takes a lock for a moment, which a reader may not.
        return await self._database.write(lanes)

    async def pin(self, claim: Claim, pins_hash: str) -> None:
        """Keep what the run was begun with: its tree, prompts, tools and settings, by hash."""
        await self._database.write(
            lambda tx: fenced(claim, tx.run(_PIN, **_held(claim), new_pins=pins_hash))
        )

    async def wait(self, claim: Claim) -> None:
        """Give the run back while a person is asked; it keeps its lane."""
        await self._database.write(lambda tx: fenced(claim, tx.run(_WAIT, **_held(claim))))
        self._driven.discard(claim.run_id)

    async def finish(
        self,
        claim: Claim,
        status: RunStatus,
        given: Sequence[NewMessage] = (),
        *,
        error: Mapping[str, Any] | None = None,
        also: Sequence[Operation[Any]] = (),
    ) -> bool:
        """End the run: messages, status, head and whatever else, all at once or not at all.

        Did the head move? It stays where it is if it was moved while the run went on.
        """
        if not status.has_ended:
            raise BadRequest(f"a run does not end as {status.value}.")
        check_messages(given)
        kept = None if error is None else to_json(changed(dict(error), self._hide))

        def finish(tx: Transaction) -> bool:
            # The lane before the run, as everybody takes them.
            tx.row(_LOCK_LANE, conversation_id=claim.conversation_id)
            parent_id = _end(tx, claim, status, given, error_json=kept)
            for operation in also:
                operation(tx)
            settle_cut(tx, claim.run_id)
            return move_head(tx, claim.conversation_id, expected=parent_id, to=claim.run_id)

        moved = await self._database.write(finish)
        self._driven.discard(claim.run_id)
        return moved

    async def cancel(self, user_id: str, run_id: int) -> RunStatus:
        """Ask for the end of a run, durably. A queued one has ended when this returns."""

        def cancel(tx: Transaction) -> RunStatus:
            node = find_node(tx, user_id, run_id)
            lane = tx.row(_LOCK_LANE, conversation_id=node.conversation_id)
            now = time()
            tx.run(_ASK_CANCEL, run_id=run_id, now=now)
            # It was said after what is the head now, and was not answered.
            tx.run(_CANCEL_QUEUED, run_id=run_id, now=now, head=lane and lane[0])
            return find_node(tx, user_id, run_id).status

        return await self._database.write(cancel)

    async def get(self, user_id: str, run_id: int) -> RunNode:
        return await self._database.read(lambda tx: find_node(tx, user_id, run_id))

    async def messages(self, user_id: str, run_id: int) -> list[StoredMessage]:
        def read(tx: Transaction) -> list[StoredMessage]:
            find_node(tx, user_id, run_id)
            return [read_message(row) for row in tx.rows(_MESSAGES, run_id=run_id)]

        return await self._database.read(read)


def check_claim(tx: Transaction, claim: Claim) -> None:
    """Raise unless the claim still holds; it then holds until the transaction has ended."""
    fenced(claim, tx.row(_CHECK, **_held(claim)))


def fenced(claim: Claim, touched: Any) -> None:
    if not touched:
        raise Fenced(
            f"run {claim.run_id} is no longer ours: attempt {claim.attempt} of it has ended or "
            "was taken over."
        )


def _held(claim: Claim) -> dict[str, int]:
    return {"run_id": claim.run_id, "held": claim.attempt}


def _end(
    tx: Transaction,
    claim: Claim,
    status: RunStatus,
    given: Sequence[NewMessage],
    *,
    error_json: str | None,
) -> int | None:
    """The last word on a run; its parent."""
    now = time()
    row = tx.row(
        _END,
        **_held(claim),
        new_status=status.value,
        new_error=error_json,
        added=sum(message.token_count for message in given),
        now=now,
    )
    fenced(claim, row)
    assert row is not None
    (count,) = tx.row(_COUNT, run_id=claim.run_id) or (0,)
    where = {"conversation_id": claim.conversation_id, "run_id": claim.run_id}
    add_messages(tx, given, **where, first=count, now=now)
    return row[0]
