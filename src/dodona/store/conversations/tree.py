"""The tree of a conversation for display: pages, the path to the head, the bare shape.

Only the excerpts that are shown are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from sqlalchemy import CTE, ColumnElement, Select, and_, bindparam, func, literal, not_, select

from dodona.core.domain.conversations.conversation import Conversation, RunStatus
from dodona.core.domain.conversations.conversation_tree import (
    MAX_EXCERPT_CHARS,
    Excerpt,
    MessageLocation,
    TreeLink,
    TreeLinks,
    TreeNode,
    TreePage,
)
from dodona.core.errors import NotFound
from dodona.store.conversations.nodes import NODE_COLUMNS, TOKENS_OF_RUN, node_from_row
from dodona.store.db.database import Row, Transaction
from dodona.store.db.statements import Statement, statement
from dodona.store.schema import IS_OPEN, IS_QUEUED, conversations, messages, runs, summaries

_BATCH_SIZE: Final = 100  # ids per statement
_PATH_CHUNK: Final = 2_000  # runs per step of a walk
_UNLIMITED: Final = 2**31 - 1
_MAX_ID: Final = 2**62

_IN_CONVERSATION = runs.c.conversation_id == bindparam("conversation_id")
# A queued run has no parent until it is claimed.
_IS_QUEUED_FOLLOWER = and_(IS_OPEN, IS_QUEUED, runs.c.follows_head)  # uses the index of open runs


def _in_batch(column: ColumnElement[Any]) -> ColumnElement[bool]:
    return column.in_([bindparam(f"among_{n}", type_=runs.c.id.type) for n in range(_BATCH_SIZE)])


def _ancestors_cte() -> CTE:
    """Select a run and its ancestors, up to a number of them."""
    newest = (
        select(runs.c.id, runs.c.parent_id, literal(0).label("depth"))
        .where(_IN_CONVERSATION, runs.c.id == bindparam("from_id"))
        .cte("up", recursive=True)
    )
    older = select(runs.c.id, runs.c.parent_id, newest.c.depth + 1).where(
        runs.c.id == newest.c.parent_id, newest.c.depth + 1 < bindparam("most")
    )
    return newest.union_all(older)


def _select_ids(*conditions: ColumnElement[bool]) -> Select[Any]:
    return select(runs.c.id).where(_IN_CONVERSATION, *conditions).limit(bindparam("limit"))


_ancestors = _ancestors_cte()
_SELECT_PATH = statement(
    select(_ancestors.c.id, _ancestors.c.parent_id).order_by(_ancestors.c.depth)
)
_SELECT_PARENT = statement(
    select(runs.c.parent_id).where(_IN_CONVERSATION, runs.c.id == bindparam("run_id"))
)
_SELECT_PAGE = statement(_select_ids(runs.c.id < bindparam("before")).order_by(runs.c.id.desc()))
# Ordered by an expression: otherwise SQLite scans all runs instead of sorting a few.
_SELECT_CHILDREN = statement(
    _select_ids(_in_batch(runs.c.parent_id)).order_by((runs.c.id + 0).desc())
)
_SELECT_ROOTS = statement(
    _select_ids(runs.c.parent_id.is_(None), not_(_IS_QUEUED_FOLLOWER)).order_by(runs.c.id.desc())
)
_SELECT_FOLLOWERS = statement(_select_ids(_IS_QUEUED_FOLLOWER).order_by(runs.c.id))
_SELECT_NODES = statement(
    select(
        *(runs.c.id, runs.c.parent_id, runs.c.status, runs.c.label, TOKENS_OF_RUN),
        *(runs.c.created_at, runs.c.follows_head),
    ).where(_IN_CONVERSATION, _in_batch(runs.c.id))
)
_COUNT_CHILDREN = statement(
    select(runs.c.parent_id, func.count())
    .where(_IN_CONVERSATION, _in_batch(runs.c.parent_id))
    .group_by(runs.c.parent_id)
)
_SELECT_EXCERPTS = statement(
    select(
        *(messages.c.run_id, messages.c.role, messages.c.id),
        func.substr(messages.c.content, 1, MAX_EXCERPT_CHARS + 1),
    )
    .where(messages.c.role != "tool", _in_batch(messages.c.run_id))
    .order_by(messages.c.run_id, messages.c.ordinal)
)
_SELECT_SUMMARISED = statement(select(summaries.c.run_id).where(_in_batch(summaries.c.run_id)))
_SELECT_LINKS = statement(
    select(runs.c.id, runs.c.parent_id, runs.c.label, runs.c.status, runs.c.follows_head)
    .where(_IN_CONVERSATION, runs.c.id > bindparam("after"))
    .order_by(runs.c.id)
    .limit(bindparam("limit"))
)
_SELECT_BY_LABEL = statement(
    select(runs.c.id).where(_IN_CONVERSATION, runs.c.label == bindparam("name"))
)
_SELECT_MESSAGE = statement(
    select(*NODE_COLUMNS, messages.c.role)
    .join(runs, runs.c.id == messages.c.run_id)
    .join(conversations, conversations.c.id == runs.c.conversation_id)
    .where(
        messages.c.id == bindparam("message_id"), conversations.c.user_id == bindparam("its_user")
    )
)


def read_page(
    tx: Transaction, conversation: Conversation, *, before: int | None, limit: int
) -> TreePage:
    """Return the nodes with ids below `before`, newest first."""
    last = _MAX_ID if before is None else before
    rows = tx.fetch_all(_SELECT_PAGE, conversation_id=conversation.id, before=last, limit=limit + 1)
    ids = [row[0] for row in rows[:limit]]
    nodes, on_path = (
        tuple(read_nodes(tx, conversation, ids)),
        _filter_on_path(tx, conversation, ids),
    )
    return TreePage(conversation.head_id, nodes, on_path, ids[-1] if rows[limit:] else None)


def read_path(
    tx: Transaction, conversation: Conversation, *, before: int | None, limit: int
) -> TreePage:
    """Return the path from the head to the root, or the part of it above `before`.

    It is followed by the newest branches off it, at most as many as nodes on the path.
    """
    start = conversation.head_id if before is None else fetch_parent_id(tx, conversation, before)
    rows = _fetch_path(tx, conversation, start, limit=limit + 1)
    path = [row[0] for row in rows[:limit]]
    next_before = path[-1] if rows[limit:] else None
    branches = _fetch_branches(tx, conversation, path, limit=limit, is_top=next_before is None)
    if before is None:
        keys = {"conversation_id": conversation.id, "limit": limit}
        branches += [row[0] for row in tx.fetch_all(_SELECT_FOLLOWERS, **keys)]
    new = [each for each in branches if each not in path and each != before]
    ids = [*path, *new[:limit]]
    # Ancestors of an arbitrary node may not be on the path to the head.
    on_path = frozenset(path) if before is None else _filter_on_path(tx, conversation, ids)
    nodes = tuple(read_nodes(tx, conversation, ids))
    return TreePage(conversation.head_id, nodes, on_path, next_before)


def _filter_on_path(tx: Transaction, conversation: Conversation, ids: list[int]) -> frozenset[int]:
    """Return those of the given nodes that are on the path from the root to the head."""
    on_path: set[int] = set()
    position = conversation.head_id
    while position is not None and ids:
        rows = _fetch_path(tx, conversation, position, limit=_PATH_CHUNK)
        chunk = [row[0] for row in rows]
        on_path.update(chunk)
        # A parent is older than its children, except for runs that were queued while others were
        # answered; there are never as many of those as in one chunk.
        position = None if max(chunk) < min(ids) else rows[-1][1]
    return frozenset(on_path.intersection(ids))


def fetch_parent_id(tx: Transaction, conversation: Conversation, run_id: int) -> int | None:
    """Return the parent of a run, or raise NotFound."""
    row = tx.fetch_one(_SELECT_PARENT, conversation_id=conversation.id, run_id=run_id)
    if row is None:
        raise NotFound(f"there is no run {run_id} in conversation {conversation.id}.")
    return row[0]


def _fetch_path(
    tx: Transaction, conversation: Conversation, start: int | None, *, limit: int
) -> list[Row]:
    if start is None:
        return []
    return tx.fetch_all(_SELECT_PATH, conversation_id=conversation.id, from_id=start, most=limit)


def _fetch_branches(
    tx: Transaction, conversation: Conversation, path: list[int], *, limit: int, is_top: bool
) -> list[int]:
    """Return the children of the given nodes, and the roots if the path reaches the root."""
    ids = [
        row[0]
        for row in _fetch_in_batches(tx, _SELECT_CHILDREN, path, conversation, {"limit": 2 * limit})
    ]
    if is_top:
        rows = tx.fetch_all(_SELECT_ROOTS, conversation_id=conversation.id, limit=limit)
        ids += [row[0] for row in rows]
    return ids


def read_nodes(
    tx: Transaction, conversation: Conversation, ids: Sequence[int]
) -> Iterator[TreeNode]:
    """Yield those of the given nodes that exist, in the same order."""
    head = conversation.head_id
    rows = {row[0]: row for row in _fetch_in_batches(tx, _SELECT_NODES, ids, conversation)}
    children: dict[int | None, int] = dict(
        _fetch_in_batches(tx, _COUNT_CHILDREN, ids, conversation)
    )
    keys = {"conversation_id": conversation.id, "limit": _UNLIMITED}
    children[head] = children.get(head, 0) + len(tx.fetch_all(_SELECT_FOLLOWERS, **keys))
    summarised = {row[0] for row in _fetch_in_batches(tx, _SELECT_SUMMARISED, ids)}
    questions, answers = _questions_and_answers(_fetch_in_batches(tx, _SELECT_EXCERPTS, ids))
    for id_ in ids:
        if (row := rows.get(id_)) is not None:
            yield TreeNode(
                id=id_,
                parent_id=_effective_parent(row[1], head, status=row[2], follows_head=row[6]),
                status=RunStatus(row[2]),
                label=row[3],
                tokens=int(row[4]),
                created_at=row[5],
                child_count=children.get(id_, 0),
                has_summary=id_ in summarised,
                question=questions.get(id_),
                answer=answers.get(id_),
            )


def _questions_and_answers(rows: list[Row]) -> tuple[dict[int, Excerpt], dict[int, Excerpt]]:
    """Return the first user message and the last assistant message of each run."""
    questions: dict[int, Excerpt] = {}
    answers: dict[int, Excerpt] = {}
    for run_id, role, message_id, text in rows:
        short = text if len(text) <= MAX_EXCERPT_CHARS else f"{text[: MAX_EXCERPT_CHARS - 1]}…"
        if role == "user":
            questions.setdefault(run_id, Excerpt(message_id, short))
        else:
            answers[run_id] = Excerpt(message_id, short)
    return questions, answers


def read_links(tx: Transaction, conversation: Conversation, *, after: int, limit: int) -> TreeLinks:
    """Return a page of the tree's shape, by ascending ids."""
    rows = tx.fetch_all(_SELECT_LINKS, conversation_id=conversation.id, after=after, limit=limit)
    head = conversation.head_id
    links = [
        TreeLink(
            id_,
            _effective_parent(parent_id, head, status=status, follows_head=follows_head),
            label,
            not RunStatus(status).has_ended,
        )
        for id_, parent_id, label, status, follows_head in rows
    ]
    return TreeLinks(head, tuple(links))


def _effective_parent(
    parent_id: int | None, head_id: int | None, *, status: str, follows_head: bool
) -> int | None:
    return head_id if status == "queued" and follows_head else parent_id


def find_by_label(tx: Transaction, conversation_id: int, label: str) -> int | None:
    """Return the node with a label, if any."""
    row = tx.fetch_one(_SELECT_BY_LABEL, conversation_id=conversation_id, name=label)
    return None if row is None else row[0]


def find_message(tx: Transaction, user_id: str, message_id: int) -> MessageLocation:
    """Return the role and the run of a user's message, or raise NotFound."""
    row = tx.fetch_one(_SELECT_MESSAGE, message_id=message_id, its_user=user_id)
    if row is None:
        raise NotFound(f"there is no message {message_id}.")
    return MessageLocation(row[-1], node_from_row(row[:-1]))


def _fetch_in_batches(
    tx: Transaction,
    query: Statement,
    ids: Sequence[int],
    conversation: Conversation | None = None,
    extra: dict[str, Any] | None = None,
) -> list[Row]:
    """Fetch the rows for ids in batches; the last id pads an incomplete batch."""
    values = {**(extra or {})}
    if conversation is not None:
        values["conversation_id"] = conversation.id
    rows: list[Row] = []
    for first in range(0, len(ids), _BATCH_SIZE):
        batch = list(ids[first : first + _BATCH_SIZE])
        batch += batch[-1:] * (_BATCH_SIZE - len(batch))
        rows += tx.fetch_all(query, **values, **{f"among_{n}": id_ for n, id_ in enumerate(batch)})
    return rows
