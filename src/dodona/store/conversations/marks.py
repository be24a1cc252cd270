"""Marks of a conversation: removed from its messages and summary after a person has reviewed it."""

from __future__ import annotations

from time import time
from typing import Final

from sqlalchemy import bindparam, update

from dodona.core.domain.conversations.conversation import Conversation
from dodona.store.conversations.window import read_window
from dodona.store.db.database import Transaction
from dodona.store.db.statements import statement
from dodona.store.db.text import from_json, to_json
from dodona.store.schema import conversations, messages, summaries

MAX_RUNS: Final = 1_000  # a window, and all runs that its next summary may cover
_NO_TOKEN_LIMIT: Final = 2**31 - 1

_UPDATE_METADATA = statement(
    update(messages)
    .where(messages.c.id == bindparam("message_id"))
    .values(metadata=bindparam("new_metadata"))
)
_CLEAR_SUMMARY = statement(
    update(summaries).where(summaries.c.run_id == bindparam("its_run")).values(marks_json=None)
)
_TOUCH_CONVERSATION = statement(
    update(conversations)
    .where(conversations.c.id == bindparam("conversation_id"))
    .values(updated_at=bindparam("now"))
)


def clear_window_marks(tx: Transaction, conversation: Conversation) -> None:
    """Remove the marks of all text that the next question continues."""
    window = read_window(
        tx,
        conversation_id=conversation.id,
        from_id=conversation.head_id,
        budget=_NO_TOKEN_LIMIT,
        max_runs=MAX_RUNS,
    )
    for message in window.messages:
        if (metadata := _without_marks(message.metadata)) != message.metadata:
            tx.execute(_UPDATE_METADATA, message_id=message.id, new_metadata=metadata)
    if window.summary is not None:
        tx.execute(_CLEAR_SUMMARY, its_run=window.summary.run_id)
    # Invalidates cached windows.
    tx.execute(_TOUCH_CONVERSATION, conversation_id=conversation.id, now=time())


def _without_marks(metadata: str | None) -> str | None:
    record = from_json(metadata)
    if not record or not record.get("provenance", {}).get("marks"):
        return metadata
    del record["provenance"]["marks"]
    return to_json(record)
