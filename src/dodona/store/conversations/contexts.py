"""Oracle contexts: kept, moved, closed when idle, begun anew."""

from __future__ import annotations

from collections.abc import Sequence
from time import time
from typing import Any, Final, Protocol
from uuid import uuid4

from sqlalchemy import bindparam, case, exists, select, update

from dodona.core.domain.agents import DEFAULT_AGENT
from dodona.core.domain.conversations.contexts import (
    TOKEN_BUDGET,
    TOKEN_BUDGET_BOUNDS,
    ContextStatus,
    OracleContext,
)
from dodona.core.errors import BadRequest, NotFound
from dodona.store.conversations.conversations import begin_conversation
from dodona.store.db.database import Database, Row, Transaction
from dodona.store.db.statements import statement, upsert
from dodona.store.db.text import from_json, to_json
from dodona.store.projects.projects import find_project
from dodona.store.schema import IS_OPEN, oracle_contexts, runs

MOST_DECISIONS: Final = 200  # the newest are kept
MOST_MENTIONED: Final = 200  # of symbols, and of files

# A closed one becomes active again by being opened, and so gets a new conversation.
_MAY_BECOME = {
    ContextStatus.ACTIVE: (ContextStatus.SUSPENDED, ContextStatus.CLOSED),
    ContextStatus.SUSPENDED: (ContextStatus.ACTIVE, ContextStatus.CLOSED),
    ContextStatus.CLOSED: (),
}


_STATUSES = {status.value: status for status in ContextStatus}

_contexts = oracle_contexts.c
CONTEXT_COLUMNS = (
    *(_contexts.id, _contexts.user_id, _contexts.project_id, _contexts.conversation_id),
    *(_contexts.session_start, _contexts.last_activity, _contexts.last_model),
    *(_contexts.token_budget, _contexts.tokens_used, _contexts.key_decisions_json),
    *(_contexts.mentioned_symbols, _contexts.mentioned_files, _contexts.status),
    _contexts.compression_count,
)
_MINE = (
    _contexts.user_id == bindparam("its_user"),
    _contexts.project_id == bindparam("its_project"),
)
_THIS = _contexts.id == bindparam("context_id")
_READ = statement(select(*CONTEXT_COLUMNS).where(*_MINE))
_LOCK = statement(select(*CONTEXT_COLUMNS).where(*_MINE).with_for_update())
_ABOUT = statement(
    select(*CONTEXT_COLUMNS)
    .where(
        _contexts.user_id == bindparam("its_user"),
        _contexts.conversation_id == bindparam("conversation_id"),
        _contexts.status != ContextStatus.CLOSED.value,
    )
    .with_for_update()
)
_GIVEN = ("id", "user_id", "project_id", "session_start", "last_activity", "token_budget")
_ENSURE = upsert(
    oracle_contexts,
    lambda add: (
        add.values({name: bindparam(name) for name in _GIVEN})
        # The update also locks the row, and whoever closes idle ones sees that this is none.
        .on_conflict_do_update(
            index_elements=["user_id", "project_id"],
            set_={"last_activity": add.excluded.last_activity},
        )
        .returning(*CONTEXT_COLUMNS)
    ),
)
_BEGIN = statement(
    update(oracle_contexts)
    .where(_THIS)
    .values(
        conversation_id=bindparam("new_conversation"),
        session_start=bindparam("now"),
        last_model=None,
        token_budget=bindparam("new_budget"),
        tokens_used=0,
        key_decisions_json="[]",
        mentioned_symbols=None,
        mentioned_files=None,
        status=ContextStatus.ACTIVE.value,
        compression_count=0,
    )
)
_MOVE = statement(update(oracle_contexts).where(_THIS).values(status=bindparam("new_status")))
_TOUCH = statement(
    update(oracle_contexts)
    .where(_THIS)
    .values(
        last_activity=bindparam("now"),
        last_model=bindparam("new_model"),
        tokens_used=bindparam("new_tokens"),
    )
)
_DECIDE = statement(
    update(oracle_contexts).where(_THIS).values(key_decisions_json=bindparam("new_decisions"))
)
_MENTIONED = statement(
    select(_contexts.key_decisions_json, _contexts.mentioned_symbols, _contexts.mentioned_files)
    .where(
        _contexts.conversation_id == bindparam("its_conversation"),
        _contexts.status != ContextStatus.CLOSED.value,
    )
    .with_for_update()
)
NEW_MENTIONS: Final[dict[str, Any]] = {
    "key_decisions_json": bindparam("new_decisions"),
    "mentioned_symbols": bindparam("new_symbols"),
    "mentioned_files": bindparam("new_files"),
}
_tokens = bindparam("new_tokens", type_=_contexts.tokens_used.type)
_COMPRESS = statement(
    update(oracle_contexts)
    .where(
        _contexts.conversation_id == bindparam("its_conversation"),
        _contexts.status != ContextStatus.CLOSED.value,
    )
    .values(
        **NEW_MENTIONS,
        compression_count=_contexts.compression_count + 1,
        tokens_used=case(
            (_tokens.between(0, _contexts.token_budget), _tokens), else_=_contexts.tokens_used
        ),
    )
)
_CLOSE_IDLE = statement(
    update(oracle_contexts)
    .where(
        _contexts.status != ContextStatus.CLOSED.value,
        _contexts.last_activity < bindparam("before"),
        ~exists().where(runs.c.conversation_id == _contexts.conversation_id, IS_OPEN),
    )
    .values(status=ContextStatus.CLOSED.value)
)


class Contexts:
    """The contexts of all users, one for each project; every call says whose."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, user_id: str, project_id: str) -> OracleContext:
        return await self._database.read(
            lambda tx: _found(tx.row(_READ, **_key(user_id, project_id)), project_id)
        )

    async def open(
        self, user_id: str, project_id: str, *, token_budget: int = TOKEN_BUDGET
    ) -> OracleContext:
        """The context for a question, as it is; a new one if there is none.

        One that was closed, or whose conversation was deleted, begins anew: active, empty, in a
        new conversation, and from then on with this budget.
        """
        check_budget(token_budget)

        def open_(tx: Transaction) -> OracleContext:
            find_project(tx, user_id, project_id)
            return opened(tx, user_id, project_id, token_budget=token_budget)

        return await self._database.write(open_)

    async def move(self, user_id: str, project_id: str, to: ContextStatus) -> OracleContext:
        """Suspend, resume or close it."""

        def move(tx: Transaction) -> OracleContext:
            key = _key(user_id, project_id)
            context = _found(tx.row(_LOCK, **key), project_id)
            if to not in _MAY_BECOME[context.status]:
                raise BadRequest(
                    f"a context that is {context.status.value} cannot become {to.value}."
                )
            tx.run(_MOVE, context_id=context.id, new_status=to.value)
            return _found(tx.row(_READ, **key), project_id)

        return await self._database.write(move)

    async def touch(
        self, user_id: str, conversation_id: int, *, model: str, tokens_used: int
    ) -> bool:
        return await self._database.write(
            lambda tx: touch_context(
                tx, user_id, conversation_id, model=model, tokens_used=tokens_used
            )
        )

    async def decide(self, user_id: str, conversation_id: int, decisions: Sequence[str]) -> bool:
        return await self._database.write(
            lambda tx: add_decisions(tx, user_id, conversation_id, decisions)
        )

    async def close_idle(self, before: float) -> int:
        """Close those in which nothing happened since a time and nothing goes on; how many."""
        return await self._database.write(lambda tx: tx.run(_CLOSE_IDLE, before=before))


def touch_context(
    tx: Transaction, user_id: str, conversation_id: int, *, model: str, tokens_used: int
) -> bool:
    """Note that a conversation went on: when, with which model, how much its context holds.

    False when no open context is about it: it was closed meanwhile, or there never was one.
    """
    row = tx.row(_ABOUT, its_user=user_id, conversation_id=conversation_id)
    if row is None:
        return False
    context = read_context(row)
    if tokens_used * 10 > context.token_budget * 11:
        raise BadRequest(
            f"the context holds {tokens_used:,} tokens, past 110 % of its budget of "
            f"{context.token_budget:,}.",
            hint="Leave older exchanges out.",
        )
    tx.run(_TOUCH, context_id=context.id, now=time(), new_model=model, new_tokens=tokens_used)
    return True


def add_decisions(
    tx: Transaction, user_id: str, conversation_id: int, decisions: Sequence[str]
) -> bool:
    """Remember what was decided, each once, the newest last; False as with `touch_context`."""
    row = tx.row(_ABOUT, its_user=user_id, conversation_id=conversation_id)
    if row is None:
        return False
    context = read_context(row)
    kept = _newest(context.key_decisions, decisions, MOST_DECISIONS)
    tx.run(_DECIDE, context_id=context.id, new_decisions=to_json(kept))
    return True


class Mentions(Protocol):
    """What leaves decisions and names behind: the end of a run, or a summary."""

    @property
    def decisions(self) -> Sequence[str]: ...

    @property
    def mentioned_symbols(self) -> Sequence[str]: ...

    @property
    def mentioned_files(self) -> Sequence[str]: ...


def mentions(tx: Transaction, conversation_id: int, told: Mentions) -> dict[str, Any] | None:
    """The values of NEW_MENTIONS: what the context knew, then what is new to it.

    None when no open context is about the conversation.
    """
    row = tx.row(_MENTIONED, its_conversation=conversation_id)
    if row is None:
        return None
    decisions, symbols, files = row
    return {
        "new_decisions": to_json(_added(from_json(decisions), told.decisions, MOST_DECISIONS)),
        "new_symbols": _joined(symbols, told.mentioned_symbols),
        "new_files": _joined(files, told.mentioned_files),
    }


def compress_context(
    tx: Transaction, conversation_id: int, told: Mentions, *, tokens: int | None
) -> None:
    """Count one more compression; `tokens` is what the context holds now, if that is known."""
    if (values := mentions(tx, conversation_id, told)) is not None:
        tx.run(
            _COMPRESS,
            its_conversation=conversation_id,
            new_tokens=-1 if tokens is None else tokens,
            **values,
        )


def _newest(known: Sequence[str], fresh: Sequence[str], most: int) -> list[str]:
    """Each once, in the order in which they were told last."""
    again = set(fresh)
    return [*(each for each in known if each not in again), *dict.fromkeys(fresh)][-most:]


def _added(known: Sequence[str], fresh: Sequence[str], most: int) -> list[str]:
    """Each once, in the order in which they were told first."""
    return list(dict.fromkeys([*known, *fresh]))[-most:]


def _joined(known: str | None, fresh: Sequence[str]) -> str | None:
    """Names in one text; one that has a comma itself is in the messages only."""
    names = [name for name in fresh if "," not in name]
    return ", ".join(_added(known.split(", ") if known else (), names, MOST_MENTIONED)) or None


def check_budget(tokens: int) -> None:
    lowest, highest = TOKEN_BUDGET_BOUNDS
    if not lowest <= tokens <= highest:
        raise BadRequest(f"token_budget must be from {lowest} to {highest} (got {tokens}).")


def opened(
    tx: Transaction,
    user_id: str,
    project_id: str,
    *,
    token_budget: int,
    agent_id: str = DEFAULT_AGENT,
) -> OracleContext:
    """The context for a question; one that was closed begins anew."""
    now = time()
    row = tx.row(
        _ENSURE,
        id=uuid4().hex,
        user_id=user_id,
        project_id=project_id,
        session_start=now,
        last_activity=now,
        token_budget=token_budget,
    )
    context = _found(row, project_id)
    is_open = context.status is not ContextStatus.CLOSED and context.conversation_id is not None
    if is_open:
        return context
    begin_anew(tx, context, token_budget=token_budget, agent_id=agent_id)
    return _found(tx.row(_READ, **_key(user_id, project_id)), project_id)


def begin_anew(
    tx: Transaction, context: OracleContext, *, token_budget: int, agent_id: str
) -> None:
    """Make it active, empty, in a new conversation."""
    user_id, project_id = context.user_id, context.project_id
    begun = begin_conversation(tx, user_id, project_id=project_id, agent_id=agent_id)
    values = {"new_conversation": begun, "new_budget": token_budget, "now": time()}
    tx.run(_BEGIN, context_id=context.id, **values)


def _key(user_id: str, project_id: str) -> dict[str, str]:
    return {"its_user": user_id, "its_project": project_id}


def _found(row: Row | None, project_id: str) -> OracleContext:
    if row is None:
        raise NotFound(f"there is no context for project {project_id!r:.80}.")
    return read_context(row)


def read_context(row: Row) -> OracleContext:
    """The context in a row of CONTEXT_COLUMNS."""
    values: list[Any] = list(row)
    values[9] = () if row[9] == "[]" else tuple(from_json(row[9]))
    values[12] = _STATUSES[row[12]]
    return OracleContext(*values)
