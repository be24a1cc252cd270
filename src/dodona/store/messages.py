"""The messages of runs, written and read."""

from __future__ import annotations

from collections.abc import Sequence

from dodona.core.conversation import NewMessage, StoredMessage
from dodona.core.errors import BadRequest
from dodona.core.messages import Raw
from dodona.store.database import Row, Transaction
from dodona.store.schema import messages
from dodona.store.statements import insertion
from dodona.store.text import from_json, to_json

MESSAGE_COLUMNS = (
    messages.c.id,
    messages.c.run_id,
    messages.c.ordinal,
    messages.c.role,
    messages.c.content,
    messages.c.tool_call_id,
    messages.c.metadata,
    messages.c.raw,
    messages.c.raw_provider,
    messages.c.token_count,
    messages.c.key_insight,
    messages.c.mentioned_symbols_json,
    messages.c.mentioned_files_json,
    messages.c.created_at,
)

_ADD = insertion(
    messages, "conversation_id", *(column.name for column in MESSAGE_COLUMNS if column.name != "id")
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
    for ordinal, message in enumerate(given, first):
        raw = message.raw
        tx.run(
            _ADD,
            conversation_id=conversation_id,
            run_id=run_id,
            ordinal=ordinal,
            role=message.role,
            content=message.content,
            tool_call_id=message.tool_call_id,
            metadata=None if message.metadata is None else to_json(message.metadata),
            raw=raw and raw.body.decode(),
            raw_provider=raw and raw.provider,
            token_count=message.token_count,
            key_insight=message.key_insight,
            mentioned_symbols_json=_names(message.mentioned_symbols),
            mentioned_files_json=_names(message.mentioned_files),
            created_at=now,
        )


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
    """The message in a row of MESSAGE_COLUMNS."""
    raw, provider = row[7], row[8]
    return StoredMessage(
        id=row[0],
        run_id=row[1],
        ordinal=row[2],
        role=row[3],
        content=row[4],
        tool_call_id=row[5],
        metadata=from_json(row[6]),
        raw=None if raw is None else Raw(provider, raw.encode()),
        token_count=row[9],
        key_insight=row[10],
        mentioned_symbols=_read_names(row[11]),
        mentioned_files=_read_names(row[12]),
        created_at=row[13],
    )


def _names(names: tuple[str, ...]) -> str:
    return to_json(names) if names else "[]"


def _read_names(text: str) -> tuple[str, ...]:
    return () if text == "[]" else tuple(from_json(text))
