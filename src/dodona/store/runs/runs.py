"""Runs: accepted, claimed by one process at a time, ended once.

A unique index guards the lane of a conversation: at most one of its runs is running or waiting.
Each claim increments the run's `attempt`, and every write for a run must name the current attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from time import time
from typing import Any, Literal, TypeVar

from sqlalchemy import Integer, bindparam, func, select, update

from dodona.core.domain.conversations.contexts import DEFAULT_TOKEN_BUDGET
from dodona.core.domain.conversations.conversation import (
    Claim,
    ClaimedRun,
    Conversation,
    LaneBusy,
    NewMessage,
    RunNode,
    RunOverview,
    RunRequest,
    RunStatus,
    StoredMessage,
    SubmitReceipt,
)
from dodona.core.errors import NotFound, RunFenced
from dodona.store.billing.budgets import settle_interrupted
from dodona.store.conversations.contexts import check_token_budget
from dodona.store.conversations.conversations import HEAD
from dodona.store.conversations.messages import (
    MESSAGE_COLUMNS,
    add_messages,
    check_messages,
    message_from_row,
    redact_message,
)
from dodona.store.conversations.nodes import (
    CONVERSATION_COLUMNS,
    NODE_COLUMNS,
    find_conversation,
    find_node,
    find_parent,
    node_from_row,
)
from dodona.store.conversations.window import WindowExtent
from dodona.store.db.database import Database, StoreOperation, Transaction, log_orphaned
from dodona.store.db.owners import describe_owner
from dodona.store.db.statements import insert_returning_id, statement
from dodona.store.db.text import Redact
from dodona.store.runs.inputs import build_run_inputs
from dodona.store.runs.listing import list_open_runs, list_runs
from dodona.store.runs.submit import submit_run
from dodona.store.schema import IS_OPEN, IS_QUEUED, Id, conversations, messages, runs

_Got = TypeVar("_Got", bound=SubmitReceipt | ClaimedRun | LaneBusy | None)

_BY_ID = runs.c.id == bindparam("run_id")
IS_CLAIMED = (_BY_ID, runs.c.attempt == bindparam("held"), runs.c.status == "running")

_INSERT_RUN = insert_returning_id(
    runs,
    *("conversation_id", "user_id", "parent_id", "follows_head", "session_key", "origin"),
    *("tokens", "created_at"),
)
_SELECT_FIRST_OPEN = statement(
    select(*NODE_COLUMNS, runs.c.follows_head)
    .where(runs.c.conversation_id == bindparam("conversation_id"), IS_OPEN)
    .order_by(IS_QUEUED, runs.c.id)
    .limit(1)
)
_COUNT_OPEN = statement(
    select(func.count()).select_from(runs).where(runs.c.user_id == bindparam("its_user"), IS_OPEN)
)
_LOCK_LANE = statement(
    select(*CONVERSATION_COLUMNS)
    .where(conversations.c.id == bindparam("conversation_id"))
    .with_for_update()
)
_CLAIM = statement(
    update(runs)
    .where(_BY_ID)
    .values(
        status="running",
        owner=bindparam("new_owner"),
        attempt=runs.c.attempt + 1,
        parent_id=bindparam("new_parent"),
        started_at=func.coalesce(runs.c.started_at, bindparam("now")),
        window_from=func.coalesce(bindparam("oldest", type_=Id), runs.c.window_from),
        window_runs=func.coalesce(bindparam("seen", type_=Integer), runs.c.window_runs),
        window_tokens=func.coalesce(bindparam("seen_tokens", type_=Integer), runs.c.window_tokens),
    )
    .returning(runs.c.attempt)
)
_LOCK_CLAIMED = statement(select(runs.c.id).where(*IS_CLAIMED).with_for_update())
_UPDATE_WAITING = statement(update(runs).where(*IS_CLAIMED).values(status="waiting", owner=None))
_REQUEST_CANCEL = statement(
    update(runs)
    .where(_BY_ID, IS_OPEN)
    .values(cancel_requested_at=func.coalesce(runs.c.cancel_requested_at, bindparam("now")))
)
_CANCEL_QUEUED = statement(
    update(runs)
    .where(_BY_ID, IS_QUEUED)
    .values(
        status="cancelled",
        ended_at=bindparam("now"),
        parent_id=func.coalesce(runs.c.parent_id, bindparam("head", type_=runs.c.id.type)),
    )
)
_SELECT_OPEN = statement(select(*NODE_COLUMNS).where(IS_OPEN).order_by(runs.c.conversation_id))
_SELECT_CANCEL_REQUESTED = statement(
    select(runs.c.id).where(IS_OPEN, runs.c.cancel_requested_at.is_not(None))
)
_SELECT_MESSAGES = statement(
    select(*MESSAGE_COLUMNS)
    .where(messages.c.run_id == bindparam("run_id"))
    .order_by(messages.c.ordinal)
)


class Runs:
    """The runs of all conversations. `redact` removes known secrets from questions."""

    def __init__(self, database: Database, *, redact: Redact = str) -> None:
        self._database = database
        self._redact = redact
        self._claimed: set[int] = set()  # by this process; those of others are in the database

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
        """Accept a message: from now on it will be answered, even if the process crashes.

        It continues from the head at the time when it is claimed, or from a given node.
        """
        check_messages([message])
        message = redact_message(message, self._redact)
        now = time()

        def accept(tx: Transaction) -> RunNode:
            conversation = find_conversation(tx, user_id, conversation_id, lock=True)
            if parent != HEAD:
                find_parent(tx, conversation, parent)
            run_id = tx.insert(
                _INSERT_RUN,
                conversation_id=conversation_id,
                user_id=user_id,
                parent_id=None if parent == HEAD else parent,
                follows_head=parent == HEAD,
                session_key=session_key,
                origin=origin,
                tokens=message.token_count,
                created_at=now,
            )
            keys = {"conversation_id": conversation_id, "run_id": run_id}
            add_messages(tx, [message], **keys, first=0, now=now)
            return find_node(tx, user_id, run_id)

        return await self._database.write(accept)

    async def submit(self, request: RunRequest) -> SubmitReceipt:
        """Submit a question; this process drives it if its lane is free."""
        check_messages([request.message])
        check_token_budget(request.token_budget)
        request = replace(request, message=redact_message(request.message, self._redact))
        receipt = await self._submit_or_release_claim(lambda tx: self._submit(tx, request))
        assert isinstance(receipt, SubmitReceipt)
        return receipt

    async def claim_next(
        self,
        conversation_id: int,
        *,
        wake_run_id: int | None = None,
        token_budget: int = DEFAULT_TOKEN_BUDGET,
    ) -> ClaimedRun | LaneBusy | None:
        """Claim the next run of a lane for this process; None if no run is queued.

        A run whose process died comes first, then the oldest queued one. A waiting run is claimed
        only with its id as `wake_run_id`. `token_budget` is that of sessions.
        """
        result = await self._submit_or_release_claim(
            lambda tx: self._claim_next(tx, conversation_id, wake_run_id, token_budget=token_budget)
        )
        assert not isinstance(result, SubmitReceipt)
        return result

    async def _submit_or_release_claim(self, operation: StoreOperation[_Got]) -> _Got:
        """Run a claiming operation; if the caller is cancelled, release the claimed run."""
        future = self._database.submit(operation, on_orphaned=self._release_abandoned_claim)
        try:
            return await future
        except asyncio.CancelledError:
            if not future.cancelled():  # it was committed just before the cancellation
                self._release_abandoned_claim(None if future.exception() else future.result(), None)
            raise

    def _release_abandoned_claim(
        self, result: SubmitReceipt | ClaimedRun | LaneBusy | None, error: BaseException | None
    ) -> None:
        claimed = result.claimed if isinstance(result, SubmitReceipt) else result
        if isinstance(claimed, ClaimedRun):
            self.release_claim(claimed.claim)
        log_orphaned(result, error)

    def _submit(self, tx: Transaction, request: RunRequest) -> SubmitReceipt:
        receipt = submit_run(tx, request, owner=self._database.owners.current)
        if receipt.claimed is not None:
            self._claimed.add(receipt.run_id)  # immediately, as in _claim_next
        return receipt

    def _claim_next(
        self, tx: Transaction, conversation_id: int, wake_run_id: int | None, *, token_budget: int
    ) -> ClaimedRun | LaneBusy | None:
        lane = tx.fetch_one(_LOCK_LANE, conversation_id=conversation_id)
        if lane is None:
            raise NotFound(f"there is no conversation {conversation_id}.")
        row = tx.fetch_one(_SELECT_FIRST_OPEN, conversation_id=conversation_id)
        if row is None:
            return None
        node, follows_head, conversation = node_from_row(row[:-1]), row[-1], Conversation(*lane)
        if (busy := self._busy_lane(tx, node, wake_run_id)) is not None:
            return busy
        is_next = follows_head and not node.attempt
        parent_id = conversation.head_id if is_next else node.parent_id
        inputs, extent = build_run_inputs(
            tx, conversation, node, parent_id, token_budget=token_budget
        )
        claim = self._claim(tx, node, parent_id, extent)
        if claim.is_resumed:
            settle_interrupted(tx, node.id)
        # Immediately, because the next claim may come from this process too. If the commit fails,
        # the database does not name us as the owner, and this entry has no effect.
        self._claimed.add(node.id)
        return ClaimedRun(claim, inputs)

    def _busy_lane(
        self, tx: Transaction, node: RunNode, wake_run_id: int | None
    ) -> LaneBusy | None:
        if node.status is RunStatus.WAITING and node.id != wake_run_id:
            return LaneBusy(node.id, node.status, None, "a pending approval")
        if node.owner is not None and self._is_claimed(tx, node):
            return LaneBusy(node.id, node.status, node.owner, describe_owner(node.owner))
        return None

    def _is_claimed(self, tx: Transaction, node: RunNode) -> bool:
        owners, owner = self._database.owners, node.owner
        if owner == owners.current:
            return node.id in self._claimed
        return owner is not None and owners.is_alive(owner, tx)

    def _claim(
        self, tx: Transaction, node: RunNode, parent_id: int | None, extent: WindowExtent | None
    ) -> Claim:
        owner = self._database.owners.current
        oldest, run_count, token_count = extent or (None, None, None)
        now = time()
        row = tx.fetch_one(
            _CLAIM,
            run_id=node.id,
            new_owner=owner,
            new_parent=parent_id,
            oldest=oldest,
            seen=run_count,
            seen_tokens=token_count,
            now=now,
        )
        assert row is not None
        return Claim(
            run_id=node.id,
            conversation_id=node.conversation_id,
            attempt=row[0],
            owner=owner,
            parent_id=parent_id,
            cancel_requested=node.cancel_requested_at is not None,
            started_at=now if node.started_at is None else node.started_at,
        )

    def release_claim(self, claim: Claim) -> None:
        """Give up a run that has not ended: it may be claimed again."""
        self._claimed.discard(claim.run_id)

    async def claimable_lanes(self) -> list[int]:
        """Return the conversations in which a run can be claimed, to check after a start."""

        def lanes(tx: Transaction) -> list[int]:
            nodes = [node_from_row(row) for row in tx.fetch_all(_SELECT_OPEN)]
            blocked = {n.conversation_id for n in nodes if self._busy_lane(tx, n, None) is not None}
            return sorted({node.conversation_id for node in nodes} - blocked)

        # On PostgreSQL, checking an owner takes a lock briefly, which readers may not do.
        return await self._database.write(lanes)

    async def mark_waiting(self, claim: Claim) -> None:
        """Release the run while a person decides on an approval; it keeps its lane."""
        await self._database.write(
            lambda tx: raise_if_fenced(claim, tx.execute(_UPDATE_WAITING, **claim_values(claim)))
        )
        self._claimed.discard(claim.run_id)

    async def cancel(self, user_id: str, run_id: int) -> RunStatus:
        """Request the cancellation of a run, durably. A queued run has ended when this returns."""

        def cancel(tx: Transaction) -> RunStatus:
            node = find_node(tx, user_id, run_id)
            lane = tx.fetch_one(_LOCK_LANE, conversation_id=node.conversation_id)
            now = time()
            tx.execute(_REQUEST_CANCEL, run_id=run_id, now=now)
            # It came after the current head, and was not answered.
            head = None if lane is None else Conversation(*lane).head_id
            tx.execute(_CANCEL_QUEUED, run_id=run_id, now=now, head=head)
            return find_node(tx, user_id, run_id).status

        return await self._database.write(cancel)

    async def find_cancel_requested(self, run_ids: Iterable[int]) -> list[int]:
        """Return those of the given runs whose cancellation is requested but which still run."""
        requested = {
            row[0]
            for row in await self._database.read(lambda tx: tx.fetch_all(_SELECT_CANCEL_REQUESTED))
        }
        return [run_id for run_id in run_ids if run_id in requested]

    async def get(self, user_id: str, run_id: int) -> RunNode:
        return await self._database.read(lambda tx: find_node(tx, user_id, run_id))

    async def list(
        self, user_id: str, *, project_id: str | None = None, before: int | None = None, limit: int
    ) -> list[RunOverview]:
        """List the runs of a user, newest first; `before` is the last id of the previous page."""
        return await self._database.read(
            lambda tx: list_runs(tx, user_id, project_id=project_id, before=before, limit=limit)
        )

    async def list_unfinished(self, user_id: str, project_id: str) -> list[int]:
        """List the unfinished runs of a context: the running one, then the queued ones."""
        return await self._database.read(lambda tx: list_open_runs(tx, user_id, project_id))

    async def count_unfinished(self, user_id: str) -> int:
        """Count the unfinished runs of a user."""
        row = await self._database.read(lambda tx: tx.fetch_one(_COUNT_OPEN, its_user=user_id))
        return 0 if row is None else row[0]

    async def messages(self, user_id: str, run_id: int) -> list[StoredMessage]:
        def read(tx: Transaction) -> list[StoredMessage]:
            find_node(tx, user_id, run_id)
            return [message_from_row(row) for row in tx.fetch_all(_SELECT_MESSAGES, run_id=run_id)]

        return await self._database.read(read)


def check_claim(tx: Transaction, claim: Claim) -> None:
    """Raise RunFenced unless the claim is valid; it stays valid until the transaction ends."""
    raise_if_fenced(claim, tx.fetch_one(_LOCK_CLAIMED, **claim_values(claim)))


def raise_if_fenced(claim: Claim, affected: Any) -> None:
    """Raise RunFenced if a statement for the claimed run affected no row."""
    if not affected:
        raise RunFenced(
            f"this process no longer owns run {claim.run_id}: attempt {claim.attempt} has ended or "
            "was taken over."
        )


def claim_values(claim: Claim) -> dict[str, int]:
    """Return the values of IS_CLAIMED."""
    return {"run_id": claim.run_id, "held": claim.attempt}
