"""Storage of Oracle contexts: opened, updated, closed when idle, and reset."""

from __future__ import annotations

from collections.abc import Sequence
from time import time
from typing import Any, Final
from uuid import uuid4

from sqlalchemy import bindparam, case, exists, select, update

from dodona.core.domain.agents import DEFAULT_AGENT
from dodona.core.domain.conversations.contexts import (
    TOKEN_BUDGET_BOUNDS,
    ContextStatus,
    OracleContext,
)
from dodona.core.domain.conversations.conversation import NewSummary, RunEnd
from dodona.core.domain.trust import decode_marks, encode_marks, merge_marks
from dodona.core.errors import BadRequest, Conflict, NotFound
from dodona.store.conversations.conversations import insert_conversation
from dodona.store.conversations.marks import clear_window_marks
from dodona.store.conversations.nodes import find_conversation
from dodona.store.db.database import Database, Row, Transaction
from dodona.store.db.statements import statement, upsert
from dodona.store.db.text import from_json, to_json
from dodona.store.schema import IS_OPEN, oracle_contexts, runs

MAX_DECISIONS: Final = 200  # the newest
MAX_MENTIONS: Final = 200  # of symbols, and of files

# A closed context becomes active only by being opened, which starts a new conversation.
_TRANSITIONS = {
    ContextStatus.ACTIVE: (ContextStatus.SUSPENDED, ContextStatus.CLOSED),
    ContextStatus.SUSPENDED: (ContextStatus.ACTIVE, ContextStatus.CLOSED),
    ContextStatus.CLOSED: (),
}


_STATUSES = {status.value: status for status in ContextStatus}

_columns = oracle_contexts.c
CONTEXT_COLUMNS = (
    *(_columns.id, _columns.user_id, _columns.project_id, _columns.conversation_id),
    *(_columns.session_start, _columns.last_activity, _columns.last_model),
    *(_columns.token_budget, _columns.tokens_used, _columns.key_decisions_json),
    *(_columns.mentioned_symbols, _columns.mentioned_files, _columns.status),
    *(_columns.compression_count, _columns.marks_json),
)
_IN_USER_PROJECT = (
    _columns.user_id == bindparam("its_user"),
    _columns.project_id == bindparam("its_project"),
)
_BY_ID = _columns.id == bindparam("context_id")
_SELECT_CONTEXT = statement(select(*CONTEXT_COLUMNS).where(*_IN_USER_PROJECT))
_LOCK_CONTEXT = statement(select(*CONTEXT_COLUMNS).where(*_IN_USER_PROJECT).with_for_update())
_INSERT_FIELDS = ("id", "user_id", "project_id", "session_start", "last_activity", "token_budget")
_UPSERT_CONTEXT = upsert(
    oracle_contexts,
    lambda add: (
        add.values({name: bindparam(name) for name in _INSERT_FIELDS})
        # The update also locks the row, and prevents a concurrent close of idle contexts.
        .on_conflict_do_update(
            index_elements=["user_id", "project_id"],
            set_={"last_activity": add.excluded.last_activity},
        )
        .returning(*CONTEXT_COLUMNS)
    ),
)
_RESET_CONTEXT = statement(
    update(oracle_contexts)
    .where(_BY_ID)
    .values(
        conversation_id=bindparam("new_conversation"),
        session_start=bindparam("now"),
        last_model=None,
        token_budget=bindparam("new_budget"),
        tokens_used=0,
        key_decisions_json="[]",
        mentioned_symbols=None,
        mentioned_files=None,
        marks_json=None,
        status=ContextStatus.ACTIVE.value,
        compression_count=0,
    )
)
_UPDATE_STATUS = statement(
    update(oracle_contexts).where(_BY_ID).values(status=bindparam("new_status"))
)
_LOCK_MENTIONS = statement(
    select(
        *(_columns.key_decisions_json, _columns.mentioned_symbols, _columns.mentioned_files),
        _columns.marks_json,
    )
    .where(
        _columns.conversation_id == bindparam("its_conversation"),
        _columns.status != ContextStatus.CLOSED.value,
    )
    .with_for_update()
)
MENTION_VALUES: Final[dict[str, Any]] = {
    "key_decisions_json": bindparam("new_decisions"),
    "mentioned_symbols": bindparam("new_symbols"),
    "mentioned_files": bindparam("new_files"),
    "marks_json": bindparam("new_marks"),
}
_new_tokens = bindparam("new_tokens", type_=_columns.tokens_used.type)
_ADD_COMPRESSION = statement(
    update(oracle_contexts)
    .where(
        _columns.conversation_id == bindparam("its_conversation"),
        _columns.status != ContextStatus.CLOSED.value,
    )
    .values(
        **MENTION_VALUES,
        compression_count=_columns.compression_count + 1,
        tokens_used=case(
            (_new_tokens.between(0, _columns.token_budget), _new_tokens), else_=_columns.tokens_used
        ),
    )
)
_SELECT_OPEN_RUN = statement(
    select(runs.c.id)
    .where(runs.c.conversation_id == bindparam("its_conversation"), IS_OPEN)
    .limit(1)
)
_CLEAR_CONTEXT_MARKS = statement(update(oracle_contexts).where(_BY_ID).values(marks_json=None))
_CLOSE_IDLE = statement(
    update(oracle_contexts)
    .where(
        _columns.status != ContextStatus.CLOSED.value,
        _columns.last_activity < bindparam("before"),
        ~exists().where(runs.c.conversation_id == _columns.conversation_id, IS_OPEN),
    )
    .values(status=ContextStatus.CLOSED.value)
)


class Contexts:
    """The contexts of all users, one per project."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, user_id: str, project_id: str) -> OracleContext:
        return await self._database.read(
            lambda tx: _require_context(
                tx.fetch_one(_SELECT_CONTEXT, **_key_values(user_id, project_id)), project_id
            )
        )

    async def set_status(
        self, user_id: str, project_id: str, status: ContextStatus
    ) -> OracleContext:
        """Suspend, resume or close a context."""

        def update_status(tx: Transaction) -> OracleContext:
            key = _key_values(user_id, project_id)
            context = _require_context(tx.fetch_one(_LOCK_CONTEXT, **key), project_id)
            if status not in _TRANSITIONS[context.status]:
                raise BadRequest(
                    f"a context that is {context.status.value} cannot become {status.value}."
                )
            tx.execute(_UPDATE_STATUS, context_id=context.id, new_status=status.value)
            return _require_context(tx.fetch_one(_SELECT_CONTEXT, **key), project_id)

        return await self._database.write(update_status)

    async def clear_marks(self, user_id: str, project_id: str, *, head_id: int) -> None:
        """Clear the marks of a conversation up to its head, after a person has reviewed it.

        Raises Conflict if the head has moved: there may be text that was not reviewed.
        """

        def clear(tx: Transaction) -> None:
            key = _key_values(user_id, project_id)
            context = _require_context(tx.fetch_one(_SELECT_CONTEXT, **key), project_id)
            if context.conversation_id is None:
                raise Conflict("the conversation was deleted.")
            # Lock order: the lane before the context.
            conversation = find_conversation(tx, user_id, context.conversation_id, lock=True)
            if conversation.head_id != head_id:
                raise Conflict("the conversation has continued meanwhile.", hint="Review it again.")
            if tx.fetch_one(_SELECT_OPEN_RUN, its_conversation=conversation.id) is not None:
                # It is resumed with the marks that it started with.
                raise Conflict("a run of the conversation has not ended.", hint="Wait for its end.")
            clear_window_marks(tx, conversation)
            tx.execute(_CLEAR_CONTEXT_MARKS, context_id=context.id)

        await self._database.write(clear)

    async def close_idle(self, before: float) -> int:
        """Close contexts without activity since a time and without open runs; return the count."""
        return await self._database.write(lambda tx: tx.execute(_CLOSE_IDLE, before=before))


def merge_mentions(
    tx: Transaction, conversation_id: int, new: RunEnd | NewSummary
) -> dict[str, Any] | None:
    """Return the values of MENTION_VALUES: those of the context, followed by new ones.

    None if the conversation has no open context.
    """
    row = tx.fetch_one(_LOCK_MENTIONS, its_conversation=conversation_id)
    if row is None:
        return None
    decisions, symbols, files, marks = row
    return {
        "new_decisions": to_json(_merge(from_json(decisions), new.decisions, MAX_DECISIONS)),
        "new_symbols": _merge_names(symbols, new.mentioned_symbols),
        "new_files": _merge_names(files, new.mentioned_files),
        "new_marks": encode_marks(merge_marks(decode_marks(marks), new.marks)),
    }


def record_compression(
    tx: Transaction, conversation_id: int, new: RunEnd | NewSummary, *, tokens: int | None
) -> None:
    """Count a compression; `tokens` is the new size of the context, if known."""
    if (values := merge_mentions(tx, conversation_id, new)) is not None:
        tx.execute(
            _ADD_COMPRESSION,
            its_conversation=conversation_id,
            new_tokens=-1 if tokens is None else tokens,
            **values,
        )


def _merge(existing: Sequence[str], new: Sequence[str], limit: int) -> list[str]:
    """Merge without duplicates, in the order of the first mention."""
    return list(dict.fromkeys([*existing, *new]))[-limit:]


def _merge_names(existing: str | None, new: Sequence[str]) -> str | None:
    """Merge names into one text; names that contain a comma are only in the messages."""
    names = [name for name in new if "," not in name]
    return ", ".join(_merge(existing.split(", ") if existing else (), names, MAX_MENTIONS)) or None


def check_token_budget(tokens: int) -> None:
    """Raise BadRequest if a token budget is out of bounds."""
    lowest, highest = TOKEN_BUDGET_BOUNDS
    if not lowest <= tokens <= highest:
        raise BadRequest(f"token_budget must be from {lowest} to {highest} (got {tokens}).")


def open_context(
    tx: Transaction,
    user_id: str,
    project_id: str,
    *,
    token_budget: int,
    agent_id: str = DEFAULT_AGENT,
) -> OracleContext:
    """Return the context for a question; a closed one is reset."""
    now = time()
    row = tx.fetch_one(
        _UPSERT_CONTEXT,
        id=uuid4().hex,
        user_id=user_id,
        project_id=project_id,
        session_start=now,
        last_activity=now,
        token_budget=token_budget,
    )
    context = _require_context(row, project_id)
    is_open = context.status is not ContextStatus.CLOSED and context.conversation_id is not None
    if is_open:
        return context
    reset_context(tx, context, token_budget=token_budget, agent_id=agent_id)
    return _require_context(
        tx.fetch_one(_SELECT_CONTEXT, **_key_values(user_id, project_id)), project_id
    )


def reset_context(
    tx: Transaction, context: OracleContext, *, token_budget: int, agent_id: str
) -> None:
    """Make a context active and empty, in a new conversation."""
    user_id, project_id = context.user_id, context.project_id
    new_id = insert_conversation(tx, user_id, project_id=project_id, agent_id=agent_id)
    values = {"new_conversation": new_id, "new_budget": token_budget, "now": time()}
    tx.execute(_RESET_CONTEXT, context_id=context.id, **values)


def _key_values(user_id: str, project_id: str) -> dict[str, str]:
    return {"its_user": user_id, "its_project": project_id}


def _require_context(row: Row | None, project_id: str) -> OracleContext:
    if row is None:
        raise NotFound(f"there is no context for project {project_id!r:.80}.")
    return context_from_row(row)


def context_from_row(row: Row) -> OracleContext:
    """Return the context in a row of CONTEXT_COLUMNS."""
    values: list[Any] = list(row)
    values[9] = () if row[9] == "[]" else tuple(from_json(row[9]))
    values[12] = _STATUSES[row[12]]
    values[14] = decode_marks(row[14])
    return OracleContext(*values)
