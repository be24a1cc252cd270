"""Conversations: trees of runs with a head, read as windows, branched, pruned, deleted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import time
from typing import Final, Literal, TypeVar

from sqlalchemy import CTE, bindparam, case, delete, func, select, update

from dodona.core.domain.conversations.conversation import Conversation, NewMessage, Window
from dodona.core.domain.conversations.conversation_tree import (
    MessageLocation,
    PruneResult,
    TreeLinks,
    TreeNode,
    TreePage,
)
from dodona.core.errors import BadRequest
from dodona.store.conversations.messages import add_messages, check_messages
from dodona.store.conversations.nodes import (
    OWNED_CONVERSATION,
    find_conversation,
    find_node,
    find_parent,
)
from dodona.store.conversations.tree import (
    fetch_parent_id,
    find_by_label,
    find_message,
    read_links,
    read_nodes,
    read_page,
    read_path,
)
from dodona.store.conversations.window import read_history, read_window
from dodona.store.db.database import Database, Transaction
from dodona.store.db.statements import insert_returning_id, statement
from dodona.store.schema import HOLDS_LANE, IS_OPEN, conversations, oracle_contexts, runs

T = TypeVar("T")

HEAD: Final[Literal["head"]] = "head"  # as a parent: the head at the time of the claim

_INSERT_CONVERSATION = insert_returning_id(
    conversations,
    *("user_id", "project_id", "agent_id", "title", "created_at", "updated_at"),
)
_DELETE_CONVERSATION = statement(delete(conversations).where(*OWNED_CONVERSATION))
_UPDATE_HEAD = statement(
    update(conversations)
    .where(
        conversations.c.id == bindparam("conversation_id"),
        conversations.c.head_id.is_not_distinct_from(bindparam("expected", type_=runs.c.id.type)),
    )
    .values(head_id=bindparam("to"), updated_at=bindparam("now"))
)
_head_tokens = (
    select(runs.c.window_tokens + runs.c.tokens)
    .join(conversations, conversations.c.head_id == runs.c.id)
    .where(conversations.c.id == bindparam("conversation_id"))
    .scalar_subquery()
)
_max_tokens = oracle_contexts.c.token_budget * 11 // 10
_UPDATE_CONTEXT_TOKENS = statement(
    update(oracle_contexts)
    .where(oracle_contexts.c.conversation_id == bindparam("conversation_id"))
    .values(
        tokens_used=case(
            (func.coalesce(_head_tokens, 0) > _max_tokens, _max_tokens),
            else_=func.coalesce(_head_tokens, 0),
        )
    )
)
_INSERT_ENDED_RUN = insert_returning_id(
    runs,
    *("conversation_id", "user_id", "parent_id", "follows_head", "status", "origin", "tokens"),
    *("created_at", "started_at", "ended_at"),
)
_UPDATE_LABEL = statement(
    update(runs).where(runs.c.id == bindparam("run_id")).values(label=bindparam("new_label"))
)
_SELECT_LANE_HOLDER = statement(
    select(runs.c.id, runs.c.status).where(
        runs.c.conversation_id == bindparam("conversation_id"), HOLDS_LANE
    )
)


def _descendants() -> CTE:
    """Select a run and all of its descendants."""
    root = select(runs.c.id).where(runs.c.id == bindparam("run_id")).cte("below", recursive=True)
    children = select(runs.c.id).where(
        runs.c.conversation_id == bindparam("conversation_id"), runs.c.parent_id == root.c.id
    )
    return root.union_all(children)


_SUBTREE_IDS = select(_descendants().c.id)
_SELECT_OPEN_IN_SUBTREE = statement(
    select(runs.c.id, runs.c.status).where(runs.c.id.in_(_SUBTREE_IDS), IS_OPEN).limit(1)
)
_IS_IN_SUBTREE = statement(
    select(runs.c.id).where(runs.c.id.in_(_SUBTREE_IDS), runs.c.id == bindparam("id"))
)
_COUNT_SUBTREE = statement(select(func.count()).select_from(_SUBTREE_IDS.subquery()))
_DELETE_SUBTREE = statement(delete(runs).where(runs.c.id.in_(_SUBTREE_IDS)))


class Conversations:
    """The conversations of all users."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(
        self,
        user_id: str,
        *,
        project_id: str = "default",
        agent_id: str = "oracle",
        title: str = "",
    ) -> Conversation:
        if not user_id:
            raise BadRequest("a conversation needs a user.")

        def create(tx: Transaction) -> Conversation:
            new_id = insert_conversation(
                tx, user_id, project_id=project_id, agent_id=agent_id, title=title
            )
            return find_conversation(tx, user_id, new_id)

        return await self._database.write(create)

    async def get(self, user_id: str, conversation_id: int) -> Conversation:
        return await self._database.read(lambda tx: find_conversation(tx, user_id, conversation_id))

    async def delete(self, user_id: str, conversation_id: int) -> None:
        """Delete a conversation with its runs, messages, steps and facts. Token records stay."""

        def delete(tx: Transaction) -> None:
            find_conversation(tx, user_id, conversation_id, lock=True)
            holder = tx.fetch_one(_SELECT_LANE_HOLDER, conversation_id=conversation_id)
            if holder is not None:
                raise _run_active_error(*holder)
            tx.execute(_DELETE_CONVERSATION, conversation_id=conversation_id, user_id=user_id)

        await self._database.write(delete)

    async def append(
        self,
        user_id: str,
        conversation_id: int,
        messages: Sequence[NewMessage],
        *,
        parent: int | Literal["head"] | None = HEAD,
        origin: str = "user",
    ) -> int:
        """Add a past exchange as one run; return the id of its node.

        After the head, it moves the head; elsewhere (None: at the root) it starts a branch, and
        the head stays.
        """
        check_messages(messages)

        def append(tx: Transaction) -> int:
            conversation = find_conversation(tx, user_id, conversation_id, lock=True)
            parent_id = conversation.head_id if parent == HEAD else parent
            if parent_id is not None:
                find_parent(tx, conversation, parent_id)
            run_id = insert_ended_run(
                tx, conversation, messages, parent_id=parent_id, origin=origin
            )
            if parent == HEAD:
                move_head(tx, conversation_id, expected=parent_id, to=run_id)
            return run_id

        return await self._database.write(append)

    async def load_window(
        self,
        user_id: str,
        conversation_id: int,
        *,
        budget: int,
        from_id: int | None = None,
        max_runs: int = 10_000,
    ) -> Window:
        """Load the newest messages within a token budget, before the head or a given node."""

        def load(tx: Transaction, conversation: Conversation) -> Window:
            start = conversation.head_id if from_id is None else from_id
            if from_id is not None:
                find_parent(tx, conversation, from_id)
            return read_window(
                tx,
                conversation_id=conversation_id,
                from_id=start,
                budget=budget,
                max_runs=max_runs,
            )

        return await self._read(user_id, conversation_id, load)

    async def load_history(
        self, user_id: str, conversation_id: int, *, before: int | None, max_runs: int
    ) -> Window:
        """Load the messages of the newest runs before the head, or before a given run.

        It is truncated if there are older runs.
        """

        def load(tx: Transaction, conversation: Conversation) -> Window:
            start = (
                conversation.head_id
                if before is None
                else fetch_parent_id(tx, conversation, before)
            )
            return read_history(
                tx, conversation_id=conversation_id, from_id=start, max_runs=max_runs
            )

        return await self._read(user_id, conversation_id, load)

    async def tree_page(
        self, user_id: str, conversation_id: int, *, before: int | None, limit: int
    ) -> TreePage:
        """Return a page of nodes, newest first; `before` is the last id of the previous page."""
        read = partial(read_page, before=before, limit=limit)
        return await self._read(user_id, conversation_id, read)

    async def tree_path(
        self, user_id: str, conversation_id: int, *, before: int | None, limit: int
    ) -> TreePage:
        """Return a page of the path from the head to the root, with the branches off it."""
        read = partial(read_path, before=before, limit=limit)
        return await self._read(user_id, conversation_id, read)

    async def tree_links(
        self, user_id: str, conversation_id: int, *, after: int, limit: int
    ) -> TreeLinks:
        """Return the shape of the tree, by ascending ids."""
        return await self._read(
            user_id, conversation_id, partial(read_links, after=after, limit=limit)
        )

    async def tree_nodes(
        self, user_id: str, conversation_id: int, ids: Sequence[int]
    ) -> Sequence[TreeNode]:
        """Return those of the given nodes that exist, in the same order."""
        return await self._read(
            user_id, conversation_id, lambda tx, found: tuple(read_nodes(tx, found, ids))
        )

    async def find_by_label(self, user_id: str, conversation_id: int, label: str) -> int | None:
        """Return the node with a label, if any."""
        return await self._read(
            user_id, conversation_id, lambda tx, found: find_by_label(tx, found.id, label)
        )

    async def _read(
        self, user_id: str, conversation_id: int, read: Callable[[Transaction, Conversation], T]
    ) -> T:
        return await self._database.read(
            lambda tx: read(tx, find_conversation(tx, user_id, conversation_id))
        )

    async def locate_message(self, user_id: str, message_id: int) -> MessageLocation:
        return await self._database.read(lambda tx: find_message(tx, user_id, message_id))

    async def move_head(
        self,
        user_id: str,
        conversation_id: int,
        *,
        expected: int | None,
        to: int | None,
        label: str | None = None,
    ) -> bool:
        """Move the head to another node, or (None) to the root; False if it is not `expected`.

        A label is set on the node in the same transaction.
        """

        def move(tx: Transaction) -> bool:
            conversation = find_conversation(tx, user_id, conversation_id, lock=True)
            if to is not None:
                find_parent(tx, conversation, to)
            if not move_head(tx, conversation_id, expected=expected, to=to):
                return False
            update_context_tokens(tx, conversation_id)
            if to is not None and label is not None:
                _set_label(tx, conversation_id, run_id=to, label=label)
            return True

        return await self._database.write(move)

    async def set_label(self, user_id: str, run_id: int, label: str | None) -> None:
        """Set or (None) remove the label of a node; labels are unique in a conversation."""

        def update_label(tx: Transaction) -> None:
            node = find_node(tx, user_id, run_id)
            # Locked, so that no other node gets the same label meanwhile.
            find_conversation(tx, user_id, node.conversation_id, lock=True)
            find_node(tx, user_id, run_id)
            _set_label(tx, node.conversation_id, run_id=run_id, label=label)

        await self._database.write(update_label)

    async def prune(self, user_id: str, run_id: int) -> PruneResult:
        """Delete a node and all of its descendants; a head among them moves to its parent.

        Token records stay.
        """

        def prune(tx: Transaction) -> PruneResult:
            conversation_id = find_node(tx, user_id, run_id).conversation_id
            conversation = find_conversation(tx, user_id, conversation_id, lock=True)
            # Read again: while we waited for the lock, it may have got a parent, or been deleted.
            node = find_node(tx, user_id, run_id)
            subtree = {"run_id": run_id, "conversation_id": conversation.id}
            if (active := tx.fetch_one(_SELECT_OPEN_IN_SUBTREE, **subtree)) is not None:
                raise _run_active_error(*active)
            head = conversation.head_id
            if head is not None and tx.fetch_one(_IS_IN_SUBTREE, id=head, **subtree) is not None:
                move_head(tx, conversation.id, expected=head, to=node.parent_id)
                update_context_tokens(tx, conversation.id)
                head = node.parent_id
            # Counted before: SQLite reports no row count for a statement that starts with WITH.
            row = tx.fetch_one(_COUNT_SUBTREE, **subtree)
            assert row is not None
            tx.execute(_DELETE_SUBTREE, **subtree)
            return PruneResult(row[0], head)

        return await self._database.write(prune)


def insert_conversation(
    tx: Transaction, user_id: str, *, project_id: str, agent_id: str, title: str = ""
) -> int:
    """Insert an empty conversation; return its id."""
    now = time()
    return tx.insert(
        _INSERT_CONVERSATION,
        user_id=user_id,
        project_id=project_id,
        agent_id=agent_id,
        title=title,
        created_at=now,
        updated_at=now,
    )


def move_head(
    tx: Transaction,
    conversation_id: int,
    *,
    expected: int | None,
    to: int | None,
    now: float | None = None,
) -> bool:
    """Move the head if it is at `expected`; return whether it moved."""
    at = time() if now is None else now
    values = {"conversation_id": conversation_id, "expected": expected, "to": to, "now": at}
    return tx.execute(_UPDATE_HEAD, **values) == 1


def _set_label(tx: Transaction, conversation_id: int, *, run_id: int, label: str | None) -> None:
    holder = None if label is None else find_by_label(tx, conversation_id, label)
    if holder not in (None, run_id):
        raise BadRequest(
            f"the label {label!r:.80} belongs to run {holder}.",
            hint="Choose another label, or remove that one first.",
        )
    tx.execute(_UPDATE_LABEL, run_id=run_id, new_label=label)


def update_context_tokens(tx: Transaction, conversation_id: int) -> None:
    """Set the context's size to that of the history up to the new head, as far as recorded."""
    tx.execute(_UPDATE_CONTEXT_TOKENS, conversation_id=conversation_id)


def insert_ended_run(
    tx: Transaction,
    conversation: Conversation,
    messages: Sequence[NewMessage],
    *,
    parent_id: int | None,
    origin: str,
) -> int:
    """Insert a run that has already ended; return its id."""
    now = time()
    run_id = tx.insert(
        _INSERT_ENDED_RUN,
        conversation_id=conversation.id,
        user_id=conversation.user_id,
        parent_id=parent_id,
        follows_head=False,
        status="succeeded",
        origin=origin,
        tokens=sum(message.token_count for message in messages),
        created_at=now,
        started_at=now,
        ended_at=now,
    )
    add_messages(tx, messages, conversation_id=conversation.id, run_id=run_id, first=0, now=now)
    return run_id


def _run_active_error(run_id: int, status: str) -> BadRequest:
    return BadRequest(f"run {run_id} is {status}.", hint="Cancel it first.")
