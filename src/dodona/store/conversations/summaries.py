"""Summaries: each replaces a run and all runs before it; windows end there."""

from __future__ import annotations

from time import time

from sqlalchemy import bindparam, update

from dodona.core.domain.conversations.conversation import NewSummary
from dodona.core.domain.trust import encode_marks
from dodona.core.errors import BadRequest
from dodona.store.conversations.contexts import record_compression
from dodona.store.conversations.nodes import find_conversation, find_node
from dodona.store.db.database import Database, Transaction
from dodona.store.db.statements import insert_if_absent, statement
from dodona.store.schema import conversations, messages, summaries

_FIELDS = ("run_id", "content", "token_count", "model", "is_private")
_INSERT_SUMMARY = insert_if_absent(summaries, *_FIELDS, "marks_json", "created_at")
_UPDATE_CONVERSATION_TIME = statement(
    update(conversations)
    .where(conversations.c.id == bindparam("conversation_id"))
    .values(updated_at=bindparam("now"))
)
_UPDATE_INSIGHT = statement(
    update(messages)
    .where(
        messages.c.run_id == bindparam("its_run"),
        messages.c.conversation_id == bindparam("its_conversation"),
        messages.c.role == "assistant",
    )
    .values(key_insight=bindparam("new_insight"))
)


class Summaries:
    """The summaries of all users."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(self, user_id: str, summary: NewSummary) -> bool:
        """Save a summary of a run and all runs before it, with the extracted insights.

        The first one wins: of concurrent summaries of the same run, one returns True. The messages
        stay unchanged.
        """
        if not summary.content.strip() or summary.token_count < 1:
            raise BadRequest("a summary needs a text and a token count.")
        return await self._database.write(lambda tx: _save(tx, user_id, summary))


def _save(tx: Transaction, user_id: str, summary: NewSummary) -> bool:
    node = find_node(tx, user_id, summary.run_id)
    # Lock order: the lane before the context.
    conversation = find_conversation(tx, user_id, node.conversation_id, lock=True)
    now = time()
    values = {name: getattr(summary, name) for name in _FIELDS}
    values["marks_json"] = encode_marks(summary.marks)
    if tx.execute(_INSERT_SUMMARY, **values, created_at=now) == 0:
        return False
    rows = [
        {"its_run": run_id, "its_conversation": conversation.id, "new_insight": insight}
        for run_id, insight in summary.insights.items()
    ]
    if rows:
        tx.execute_many(_UPDATE_INSIGHT, rows)
    # Invalidates cached windows.
    tx.execute(_UPDATE_CONVERSATION_TIME, conversation_id=conversation.id, now=now)
    is_current = summary.head_id == conversation.head_id
    tokens = summary.context_tokens if is_current else None
    record_compression(tx, conversation.id, summary, tokens=tokens)
    return True
