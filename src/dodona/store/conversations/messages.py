"""The messages of runs, written and read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import bindparam, select

from dodona.core.domain.conversations.conversation import NewMessage, StoredMessage
from dodona.core.errors import BadRequest
from dodona.core.messages import Raw
from dodona.store.db.database import Row, Transaction
from dodona.store.db.statements import addition, insertion, statement
from dodona.store.db.text import Redact, from_json, hidden, storable, to_json
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

_NAMES = (
    "conversation_id",
    *(column.name for column in MESSAGE_COLUMNS if column.name != "id"),
)
_ADD = insertion(messages, *_NAMES)
_ADD_ONE = addition(messages, *_NAMES)
_QUESTION = statement(
    select(*MESSAGE_COLUMNS).where(
        messages.c.run_id == bindparam("run_id"), messages.c.ordinal == 0
    )
)
_ROLES = ("user", "assistant", "tool")


def add_messages(
    tx: Transaction,
    given: Sequence[NewMessage],
    *,
    conversation_id: int,
    run_id: int,
    first: int,
    now: float,
) -> None:
    """Append messages to a run; `first` is the ordinal of the first of them."""
    if given:
        rows = [
            _row(message, conversation_id=conversation_id, run_id=run_id, ordinal=n, now=now)
            for n, message in enumerate(given, first)
        ]
        tx.run_all(_ADD, rows)


def add_question(
    tx: Transaction, message: NewMessage, *, conversation_id: int, run_id: int, now: float
) -> StoredMessage:
    """The first message of a run, as it is kept."""
    row = _row(message, conversation_id=conversation_id, run_id=run_id, ordinal=0, now=now)
    added = tx.add(_ADD_ONE, **row)
    return StoredMessage(
        message.role,
        storable(message.content),
        message.token_count,
        message.metadata,
        message.raw,
        message.tool_call_id,
        message.key_insight,
        message.mentioned_symbols,
        message.mentioned_files,
        added,
        run_id,
        0,
        now,
    )


def hidden_message(message: NewMessage, hide: Redact) -> NewMessage:
    """The message without secrets. What a provider wants back as it was is not kept then."""
    raw = message.raw
    if raw is not None and hide(text := raw.body.decode()) != text:
        raw = None
    metadata = message.metadata
    return replace(
        message,
        content=hide(message.content),
        metadata=None if metadata is None else hidden(metadata, hide),
        raw=raw,
        key_insight=message.key_insight and hide(message.key_insight),
        mentioned_symbols=tuple(map(hide, message.mentioned_symbols)),
        mentioned_files=tuple(map(hide, message.mentioned_files)),
    )


def read_question(tx: Transaction, run_id: int) -> StoredMessage:
    """The first message of a run."""
    row = tx.row(_QUESTION, run_id=run_id)
    assert row is not None  # it was written with the run
    return read_message(row)


def _row(
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
        "metadata": None if message.metadata is None else to_json(message.metadata),
        "raw": raw and raw.body.decode(),
        "raw_provider": raw and raw.provider,
        "token_count": message.token_count,
        "key_insight": message.key_insight,
        "mentioned_symbols_json": _names(message.mentioned_symbols),
        "mentioned_files_json": _names(message.mentioned_files),
        "created_at": now,
    }


def check_messages(given: Sequence[NewMessage]) -> None:
    """Raise what is wrong with them before the database would, in words."""
    for message in given:
        if message.role not in _ROLES:
            raise BadRequest(
                f"a message has no role '{message.role}'.", hint=f"Roles are {', '.join(_ROLES)}."
            )
        if not message.content and message.role != "tool":
            raise BadRequest(f"the {message.role}'s message is empty.", hint="Say something.")
        if message.role == "tool" and message.tool_call_id is None:
            raise BadRequest("a tool's message needs the id of the call that it answers.")
        if message.token_count < 1:
            raise BadRequest(f"a message has at least one token (got {message.token_count}).")


def read_message(row: Row) -> StoredMessage:
    """The message in a row that begins with MESSAGE_COLUMNS."""
    raw = row[4]
    return StoredMessage(
        row[0],
        row[1],
        row[2],
        None if row[3] is None else from_json(row[3]),
        None if raw is None else Raw(row[13], raw.encode()),
        row[5],
        row[6],
        () if row[7] == "[]" else tuple(from_json(row[7])),
        () if row[8] == "[]" else tuple(from_json(row[8])),
        row[9],
        row[10],
        row[11],
        row[12],
    )


def _names(names: tuple[str, ...]) -> str:
    return to_json(names) if names else "[]"
