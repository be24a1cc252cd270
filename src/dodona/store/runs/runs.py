"""Runs: accepted, claimed by one process at a time, ended once.

A unique index guards the lane of a conversation: at most one of its runs is running or waiting.
Each claim increments the run's `attempt`, and every write for a run must name the current attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from time import time
from typing import Any, Final, TypeVar

from sqlalchemy import Integer, bindparam, func, or_, select, update

from dodona.core.domain.api_tokens import ApiToken
from dodona.core.domain.conversations.contexts import DEFAULT_TOKEN_BUDGET
from dodona.core.domain.conversations.conversation import (
    Claim,
    ClaimedRun,
    Conversation,
    NewMessage,
    QueuedRun,
    RunNode,
    RunOverview,
    RunRequest,
    RunStatus,
    StoredMessage,
    Window,
)
from dodona.core.domain.projects import Project
from dodona.core.errors import NotFound, RunFenced, StoreError
from dodona.store.accounts.api_tokens import find_token
from dodona.store.billing.budgets import settle_interrupted
from dodona.store.conversations.contexts import check_token_budget
from dodona.store.conversations.messages import (
    MESSAGE_COLUMNS,
    check_messages,
    message_from_row,
    read_question,
    redact_message,
)
from dodona.store.conversations.nodes import (
    CONVERSATION_COLUMNS,
    NODE_COLUMNS,
    TOKENS_OF_RUN,
    find_conversation,
    find_node,
    find_parent,
    node_from_row,
)
from dodona.store.conversations.window import (
    EMPTY_EXTENT,
    WindowExtent,
    read_next_window,
    reload_window,
)
from dodona.store.db.database import Database, StoreOperation, Transaction, log_orphaned
from dodona.store.db.statements import statement
from dodona.store.db.text import Redact
from dodona.store.runs.lanes import (
    SubmitTarget,
    find_target,
    load_window_start,
    placeholder_context,
)
from dodona.store.runs.submit import build_question, insert_queued, read_options, submit_run
from dodona.store.schema import (
    IS_OPEN,
    IS_QUEUED,
    Id,
    conversations,
    messages,
    oracle_contexts,
    pins,
    runs,
)

_Got = TypeVar("_Got", bound=ClaimedRun | QueuedRun | RunNode | None)

_MAX_QUESTION_CHARS: Final = 200  # in a list
_MAX_ID: Final = 2**62

_BY_ID = runs.c.id == bindparam("run_id")
IS_CLAIMED = (_BY_ID, runs.c.attempt == bindparam("held"), runs.c.status == "running")

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
        termination_reason="cancelled",
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
_SELECT_PINS = statement(select(pins.c.content).where(pins.c.hash == bindparam("pins_hash")))
_SELECT_RUNS = statement(
    select(
        *NODE_COLUMNS,
        conversations.c.project_id,
        func.substr(messages.c.content, 1, _MAX_QUESTION_CHARS),
        TOKENS_OF_RUN,
    )
    .join(conversations, conversations.c.id == runs.c.conversation_id)
    .outerjoin(messages, (messages.c.run_id == runs.c.id) & (messages.c.ordinal == 0))
    .where(
        runs.c.user_id == bindparam("its_user"),
        runs.c.id < bindparam("before"),
        or_(
            bindparam("any_project"),
            conversations.c.project_id == bindparam("its_project"),
        ),
    )
    .order_by(runs.c.id.desc())
    .limit(bindparam("limit"))
)
_SELECT_OPEN_RUNS = statement(
    select(runs.c.id)
    .join(oracle_contexts, oracle_contexts.c.conversation_id == runs.c.conversation_id)
    .where(
        oracle_contexts.c.user_id == bindparam("its_user"),
        oracle_contexts.c.project_id == bindparam("its_project"),
        IS_OPEN,
    )
    .order_by(IS_QUEUED, runs.c.id)
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
        parent: int | None = None,
        session_key: str | None = None,
    ) -> RunNode:
        """Accept a message in any conversation: it will be answered, even if the process crashes.

        It continues from `parent`, or from the head at the time when it is claimed.
        """
        check_messages([message])
        message = redact_message(message, self._redact)

        def accept(tx: Transaction) -> RunNode:
            conversation = find_conversation(tx, user_id, conversation_id, lock=True)
            if parent is not None:
                find_parent(tx, conversation, parent)
            row = {"user_id": user_id, "session_key": session_key, "origin": "user"}
            run_id = insert_queued(
                *(tx, message),
                **row,
                conversation_id=conversation_id,
                parent_id=parent,
                token_id=None,
            )
            return find_node(tx, user_id, run_id)

        return await self._database.write(accept)

    async def submit(self, request: RunRequest) -> ClaimedRun | QueuedRun:
        """Submit a question; this process drives it if its lane is free."""
        question = build_question(request)
        check_messages([question])
        check_token_budget(request.token_budget)
        question = redact_message(question, self._redact)

        def submit(tx: Transaction) -> ClaimedRun | QueuedRun:
            run = submit_run(tx, request, question, owner=self._database.owners.current)
            if isinstance(run, ClaimedRun):
                self._claimed.add(run.run_id)  # immediately, as in _claim_next
            return run

        return await self._submit_or_release_claim(submit)

    async def claim_next(
        self,
        conversation_id: int,
        *,
        last_id: int | None = None,
        token_budget: int = DEFAULT_TOKEN_BUDGET,
    ) -> ClaimedRun | RunNode | None:
        """Claim the next run of a lane for this process; None if no run is queued.

        Returns the run that occupies the lane if that cannot be claimed. A run whose process died
        comes first, then the oldest queued one; none that was submitted after `last_id`.
        `token_budget` is that of sessions.
        """
        return await self._submit_or_release_claim(
            lambda tx: self._claim_next(
                tx, conversation_id, last_id=last_id, token_budget=token_budget
            )
        )

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
        self, result: ClaimedRun | QueuedRun | RunNode | None, error: BaseException | None
    ) -> None:
        if isinstance(result, ClaimedRun):
            self.release_claim(result)
        log_orphaned(result, error)

    def _claim_next(
        self, tx: Transaction, conversation_id: int, *, last_id: int | None, token_budget: int
    ) -> ClaimedRun | RunNode | None:
        lane = tx.fetch_one(_LOCK_LANE, conversation_id=conversation_id)
        if lane is None:
            raise NotFound(f"there is no conversation {conversation_id}.")
        row = tx.fetch_one(_SELECT_FIRST_OPEN, conversation_id=conversation_id)
        if row is None:
            return None
        node, follows_head, conversation = node_from_row(row[:-1]), row[-1], Conversation(*lane)
        if last_id is not None and node.id > last_id:
            return None
        if self._is_driven(tx, node):
            return node
        is_next = follows_head and not node.attempt
        parent_id = conversation.head_id if is_next else node.parent_id
        claimed = _claim(
            tx,
            conversation,
            replace(node, parent_id=parent_id),
            owner=self._database.owners.current,
            token_budget=token_budget,
        )
        if claimed.is_resumed:
            settle_interrupted(tx, node.id)
        # Immediately, because the next claim may come from this process too. If the commit fails,
        # the database does not name us as the owner, and this entry has no effect.
        self._claimed.add(node.id)
        return claimed

    def _is_driven(self, tx: Transaction, node: RunNode) -> bool:
        """Whether a live process drives a run, so that it cannot be claimed."""
        owners, owner = self._database.owners, node.owner
        if owner == owners.current:
            return node.id in self._claimed
        return owner is not None and owners.is_alive(owner, tx)

    def release_claim(self, claim: Claim) -> None:
        """Give up a run that has not ended: it may be claimed again."""
        self._claimed.discard(claim.run_id)

    async def claimable_lanes(self) -> list[int]:
        """Return the conversations in which a run can be claimed, to check after a start."""

        def lanes(tx: Transaction) -> list[int]:
            nodes = [node_from_row(row) for row in tx.fetch_all(_SELECT_OPEN)]
            blocked = {n.conversation_id for n in nodes if self._is_driven(tx, n)}
            return sorted({node.conversation_id for node in nodes} - blocked)

        # On PostgreSQL, checking an owner takes a lock briefly, which readers may not do.
        return await self._database.write(lanes)

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
        rows = await self._database.read(
            lambda tx: tx.fetch_all(
                _SELECT_RUNS,
                its_user=user_id,
                before=_MAX_ID if before is None else before,
                any_project=project_id is None,
                its_project=project_id or "",
                limit=limit,
            )
        )
        return [
            RunOverview(node_from_row(row[:-3]), row[-3], row[-2] or "", int(row[-1]))
            for row in rows
        ]

    async def list_unfinished(self, user_id: str, project_id: str) -> list[int]:
        """List the unfinished runs of a context: the running one, then the queued ones."""
        rows = await self._database.read(
            lambda tx: tx.fetch_all(_SELECT_OPEN_RUNS, its_user=user_id, its_project=project_id)
        )
        return [row[0] for row in rows]

    async def count_unfinished(self, user_id: str) -> int:
        """Count the unfinished runs of a user."""
        row = await self._database.read(lambda tx: tx.fetch_one(_COUNT_OPEN, its_user=user_id))
        return 0 if row is None else row[0]

    async def messages(self, user_id: str, run_id: int) -> list[StoredMessage]:
        def read(tx: Transaction) -> list[StoredMessage]:
            find_node(tx, user_id, run_id)
            return [message_from_row(row) for row in tx.fetch_all(_SELECT_MESSAGES, run_id=run_id)]

        return await self._database.read(read)


def _claim(
    tx: Transaction, conversation: Conversation, node: RunNode, *, owner: str, token_budget: int
) -> ClaimedRun:
    """Claim a run; `token_budget` is that of sessions."""
    user_id, project_id = conversation.user_id, conversation.project_id
    target = find_target(tx, user_id, project_id)
    target = target or SubmitTarget(Project(user_id, project_id), {}, None, None)
    context = target.context
    if context is None or node.session_key is not None:
        context = placeholder_context(user_id, project_id, token_budget=token_budget)
    question = read_question(tx, node.id)
    budget = context.history_budget(question.token_count)
    window, extent = _load_window(tx, node, budget=budget, max_runs=target.max_window_runs)
    oldest, run_count, token_count = extent or (None, None, None)
    now = time()
    claim = tx.fetch_one(
        _CLAIM,
        run_id=node.id,
        new_owner=owner,
        new_parent=node.parent_id,
        oldest=oldest,
        seen=run_count,
        seen_tokens=token_count,
        now=now,
    )
    assert claim is not None
    row = None if node.pins_hash is None else tx.fetch_one(_SELECT_PINS, pins_hash=node.pins_hash)
    return ClaimedRun(
        *(node.id, node.conversation_id, claim[0], owner, node.parent_id),
        question=question,
        options=read_options(question.metadata),
        # The context may have moved to another conversation; this run stays in its own.
        context=replace(context, conversation_id=conversation.id),
        project=target.project,
        settings=target.settings,
        window=window,
        started_at=now if node.started_at is None else node.started_at,
        pins=None if row is None else bytes(row[0]),
        notices=target.load_notices(tx),
        session_key=node.session_key,
        token=_load_token(tx, node),
        origin=node.origin,
        cancel_requested=node.cancel_requested_at is not None,
    )


def _load_token(tx: Transaction, node: RunNode) -> ApiToken | None:
    """Load the token of a run. Without it, the run would ignore the token's limits."""
    if node.token_id is None:
        return None
    try:
        return find_token(tx, node.token_id)
    except NotFound as error:
        raise StoreError(
            f"run {node.id} needs token {node.token_id}, which is not in the store.",
            hint="Tokens are revoked, not deleted. Check the store: dodona db check",
        ) from error


def _load_window(
    tx: Transaction, node: RunNode, *, budget: int, max_runs: int
) -> tuple[Window, WindowExtent | None]:
    """Load the window of a run; a new attempt gets the same window as the earlier one."""
    parent_id = node.parent_id
    if parent_id is None:
        return Window(None, ()), EMPTY_EXTENT
    window_start = load_window_start(tx, node.id) if node.attempt else None
    if window_start is not None and node.started_at is not None:
        window = reload_window(
            tx,
            conversation_id=node.conversation_id,
            parent_id=parent_id,
            oldest=window_start,
            until=node.started_at,
        )
        return window, None
    return read_next_window(
        tx,
        conversation_id=node.conversation_id,
        parent_id=parent_id,
        oldest=load_window_start(tx, parent_id),
        budget=budget,
        max_runs=max_runs,
    )


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
