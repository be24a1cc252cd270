"""The messages of runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import bindparam, select

from dodona.core.domain.conversations.conversation import NewMessage, StoredMessage
from dodona.core.errors import BadRequest
from dodona.core.messages import RawMessage
from dodona.store.db.database import Row, Transaction
from dodona.store.db.statements import insert_into, insert_returning_id, statement
from dodona.store.db.text import Redact, from_json, redact_json, to_json, to_storable
from dodona.store.schema import messages

# In the order of StoredMessage's fields; the provider of `raw` comes last.
MESSAGE_COLUMNS = (
    messages.c.role,
    messages.c.content,
    messages.c.token_count,
    messages.c.metadata,
    messages.c.raw,
    messages.c.tool_call_id,
    messages.c.key_insight,
    messages.c.mentioned_symbols_json,
    messages.c.mentioned_files_json,
    messages.c.id,
    messages.c.run_id,
    messages.c.ordinal,
    messages.c.created_at,
    messages.c.raw_provider,
)

_INSERT_FIELDS = (
    "conversation_id",
    *(column.name for column in MESSAGE_COLUMNS if column.name != "id"),
)
_INSERT_MESSAGE = insert_into(messages, *_INSERT_FIELDS)
_INSERT_MESSAGE_RETURNING_ID = insert_returning_id(messages, *_INSERT_FIELDS)
_SELECT_QUESTION = statement(
    select(*MESSAGE_COLUMNS).where(
        messages.c.run_id == bindparam("run_id"), messages.c.ordinal == 0
    )
)
_ROLES = ("user", "assistant", "tool")


def add_messages(
    tx: Transaction,
    new_messages: Sequence[NewMessage],
    *,
    conversation_id: int,
    run_id: int,
    first: int,
    now: float,
) -> None:
    """Append messages to a run; `first` is the ordinal of the first of them."""
    if new_messages:
        rows = [
            _row_values(message, conversation_id=conversation_id, run_id=run_id, ordinal=n, now=now)
            for n, message in enumerate(new_messages, first)
        ]
        tx.execute_many(_INSERT_MESSAGE, rows)


def add_question(
    tx: Transaction, message: NewMessage, *, conversation_id: int, run_id: int, now: float
) -> StoredMessage:
    """Insert the first message of a run, and return it as stored."""
    row = _row_values(message, conversation_id=conversation_id, run_id=run_id, ordinal=0, now=now)
    message_id = tx.insert(_INSERT_MESSAGE_RETURNING_ID, **row)
    return StoredMessage(
        message.role,
        to_storable(message.content),
        message.token_count,
        message.metadata,
        message.raw,
        message.tool_call_id,
        message.key_insight,
        message.mentioned_symbols,
        message.mentioned_files,
        message_id,
        run_id,
        0,
        now,
    )


def redact_message(message: NewMessage, redact: Redact) -> NewMessage:
    """Remove secrets from a message. If the provider's raw JSON contains one, it is dropped."""
    raw = message.raw
    if raw is not None and redact(text := raw.body.decode()) != text:
        raw = None
    metadata = message.metadata
    return replace(
        message,
        content=redact(message.content),
        metadata=metadata and redact_json(metadata, redact),
        raw=raw,
        key_insight=message.key_insight and redact(message.key_insight),
        mentioned_symbols=tuple(map(redact, message.mentioned_symbols)),
        mentioned_files=tuple(map(redact, message.mentioned_files)),
    )


def read_question(tx: Transaction, run_id: int) -> StoredMessage:
    """Return the first message of a run."""
    row = tx.fetch_one(_SELECT_QUESTION, run_id=run_id)
    assert row is not None  # it was written with the run
    return message_from_row(row)


def _row_values(
    message: NewMessage, *, conversation_id: int, run_id: int, ordinal: int, now: float
) -> dict[str, Any]:
    raw = message.raw
    return {
        "conversation_id": conversation_id,
        "run_id": run_id,
        "ordinal": ordinal,
        "role": message.role,
        "content": message.content,
        "tool_call_id": message.tool_call_id,
        "metadata": message.metadata,
        "raw": raw and raw.body.decode(),
        "raw_provider": raw and raw.provider,
        "token_count": message.token_count,
        "key_insight": message.key_insight,
        "mentioned_symbols_json": _names_json(message.mentioned_symbols),
        "mentioned_files_json": _names_json(message.mentioned_files),
        "created_at": now,
    }


def check_messages(new_messages: Sequence[NewMessage]) -> None:
    """Raise BadRequest for invalid messages, before the database rejects them."""
    for message in new_messages:
        if message.role not in _ROLES:
            raise BadRequest(
                f"a message cannot have the role '{message.role}'.",
                hint=f"Roles are {', '.join(_ROLES)}.",
            )
        if not message.content and message.role != "tool":
            raise BadRequest(f"the {message.role} message is empty.", hint="Provide a text.")
        if message.role == "tool" and message.tool_call_id is None:
            raise BadRequest("a tool message needs the id of the call that it answers.")
        if message.token_count < 1:
            raise BadRequest(f"a message must have at least one token (got {message.token_count}).")


def message_from_row(row: Row) -> StoredMessage:
    """Return the message in a row that starts with MESSAGE_COLUMNS."""
    raw = row[4]
    return StoredMessage(
        row[0],
        row[1],
        row[2],
        row[3],
        None if raw is None else RawMessage(row[13], raw.encode()),
        row[5],
        row[6],
        () if row[7] == "[]" else tuple(from_json(row[7])),
        () if row[8] == "[]" else tuple(from_json(row[8])),
        row[9],
        row[10],
        row[11],
        row[12],
    )


def _names_json(names: tuple[str, ...]) -> str:
    return to_json(names) if names else "[]"
