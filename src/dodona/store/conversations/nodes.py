"""Runs as nodes of a conversation's tree."""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import bindparam, func, select

from dodona.core.domain.conversations.conversation import Conversation, RunNode, RunStatus
from dodona.core.errors import BadRequest, ErrorBody, NotFound
from dodona.store.db.database import Row, Transaction
from dodona.store.db.statements import statement
from dodona.store.schema import conversations, runs, token_records

NODE_COLUMNS = (
    runs.c.id,
    runs.c.conversation_id,
    runs.c.parent_id,
    runs.c.status,
    runs.c.attempt,
    runs.c.owner,
    runs.c.session_key,
    runs.c.origin,
    runs.c.label,
    runs.c.tokens,
    runs.c.pins_hash,
    runs.c.error_json,
    runs.c.created_at,
    runs.c.started_at,
    runs.c.ended_at,
    runs.c.cancel_requested_at,
    runs.c.token_id,
    runs.c.finish,
    runs.c.termination_reason,
)
# What the meter has settled for a run, including its subagents: the tokens that every view shows.
TOKENS_OF_RUN = (
    select(func.coalesce(func.sum(token_records.c.input_tokens + token_records.c.output_tokens), 0))
    .where(token_records.c.run_id == runs.c.id)
    .correlate(runs)
    .scalar_subquery()
)
CONVERSATION_COLUMNS = (
    conversations.c.id,
    conversations.c.user_id,
    conversations.c.project_id,
    conversations.c.agent_id,
    conversations.c.title,
    conversations.c.head_id,
    conversations.c.created_at,
    conversations.c.updated_at,
)
OWNED_CONVERSATION = (
    conversations.c.id == bindparam("conversation_id"),
    conversations.c.user_id == bindparam("user_id"),
)

_SELECT_CONVERSATION = statement(select(*CONVERSATION_COLUMNS).where(*OWNED_CONVERSATION))
_LOCK_CONVERSATION = statement(
    select(*CONVERSATION_COLUMNS).where(*OWNED_CONVERSATION).with_for_update()
)
_SELECT_NODE = statement(
    select(*NODE_COLUMNS)
    .join(conversations, conversations.c.id == runs.c.conversation_id)
    .where(runs.c.id == bindparam("run_id"), conversations.c.user_id == bindparam("user_id"))
)


def node_from_row(row: Row) -> RunNode:
    """Return the node in a row of NODE_COLUMNS."""
    values: list[Any] = list(row)
    values[3] = RunStatus(row[3])
    values[11] = row[11] and msgspec.json.decode(row[11], type=ErrorBody)
    return RunNode(*values)


def find_conversation(
    tx: Transaction, user_id: str, conversation_id: int, *, lock: bool = False
) -> Conversation:
    """Return the user's conversation. If locked, it cannot change until the transaction ends."""
    query = _LOCK_CONVERSATION if lock else _SELECT_CONVERSATION
    row = tx.fetch_one(query, conversation_id=conversation_id, user_id=user_id)
    if row is None:
        raise NotFound(f"there is no conversation {conversation_id}.")
    return Conversation(*row)


def find_node(tx: Transaction, user_id: str, run_id: int) -> RunNode:
    """Return the user's run as a node, or raise NotFound."""
    row = tx.fetch_one(_SELECT_NODE, run_id=run_id, user_id=user_id)
    if row is None:
        raise NotFound(f"there is no run {run_id}.")
    return node_from_row(row)


def find_parent(tx: Transaction, conversation: Conversation, run_id: int) -> RunNode:
    """Return a node that a run can follow: it is in the conversation and has ended."""
    node = find_node(tx, conversation.user_id, run_id)
    if node.conversation_id != conversation.id:
        raise NotFound(f"there is no run {run_id} in conversation {conversation.id}.")
    if not node.status.has_ended:
        raise BadRequest(
            f"run {run_id} is {node.status.value}.", hint="Wait until it has ended, or cancel it."
        )
    return node
