"""Storage of sessions, by user and key, each with its current conversation.

Sessions are never deleted. After it is cleared, a session continues in a new conversation.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import time
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    ScalarSelect,
    bindparam,
    cast,
    func,
    select,
    update,
)

from dodona.core.domain.conversations.conversation import NewMessage
from dodona.core.domain.conversations.sessions import MAX_KEY_LENGTH, Session
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.errors import BadRequest, NotFound
from dodona.store.conversations.conversations import (
    insert_conversation,
    insert_ended_run,
    move_head,
)
from dodona.store.conversations.messages import check_messages
from dodona.store.conversations.nodes import find_conversation, find_node
from dodona.store.db.database import Database, Row, Transaction
from dodona.store.db.statements import insert_into, statement
from dodona.store.projects.projects import find_project
from dodona.store.schema import IS_OPEN, conversations, runs, sessions, token_records

_COLUMNS = (
    *(sessions.c.key, sessions.c.user_id, sessions.c.agent_id, sessions.c.conversation_id),
    *(sessions.c.message_count, sessions.c.input_tokens, sessions.c.output_tokens),
    *(sessions.c.created_at, sessions.c.updated_at),
)
_BY_KEY_AND_USER = (
    sessions.c.key == bindparam("its_key"),
    sessions.c.user_id == bindparam("its_user"),
)
_SELECT_SESSION = statement(select(*_COLUMNS).where(*_BY_KEY_AND_USER))
_SELECT_SESSIONS = statement(
    select(*_COLUMNS)
    .where(_BY_KEY_AND_USER[1])
    .order_by(sessions.c.updated_at.desc(), sessions.c.key)
    .limit(bindparam("limit"))
    .offset(bindparam("skip"))
)
_INSERT_SESSION = insert_into(sessions, "key", "user_id", "agent_id", "created_at", "updated_at")
_UPDATE_CONVERSATION = statement(
    update(sessions)
    .where(*_BY_KEY_AND_USER)
    .values(conversation_id=bindparam("new_conversation"), updated_at=bindparam("now"))
)


def _of_run(column: ColumnElement[Any]) -> ScalarSelect[Any]:
    return select(column).where(runs.c.id == bindparam("its_run")).scalar_subquery()


def _settled(column: ColumnElement[int]) -> ScalarSelect[Any]:
    return (
        select(cast(func.coalesce(func.sum(column), 0), BigInteger))
        .where(token_records.c.run_id == bindparam("its_run"))
        .scalar_subquery()
    )


_COUNT_RUN = statement(
    update(sessions)
    .where(
        sessions.c.user_id == _of_run(runs.c.user_id), sessions.c.key == _of_run(runs.c.session_key)
    )
    .values(
        message_count=sessions.c.message_count + bindparam("messages"),
        input_tokens=sessions.c.input_tokens + _settled(token_records.c.input_tokens),
        output_tokens=sessions.c.output_tokens + _settled(token_records.c.output_tokens),
        updated_at=bindparam("now"),
    )
)


class Sessions:
    """The sessions of all users."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, user_id: str, key: str) -> Session:
        """Return the user's session; another user's session is NotFound."""
        return await self._database.read(
            lambda tx: _require_session(
                tx.fetch_one(_SELECT_SESSION, **_key_values(user_id, key)), key
            )
        )

    async def list(self, user_id: str, *, limit: int = 50, skip: int = 0) -> list[Session]:
        """List the user's sessions, latest first."""
        rows = await self._database.read(
            lambda tx: tx.fetch_all(_SELECT_SESSIONS, its_user=user_id, limit=limit, skip=skip)
        )
        return [Session(*row) for row in rows]

    async def clear(self, user_id: str, key: str) -> Session:
        """Start a new conversation in the same project. The old one and the counts stay."""

        def clear(tx: Transaction) -> Session:
            tx.lock_name(_lock_name(user_id, key))
            session = _require_session(
                tx.fetch_one(_SELECT_SESSION, **_key_values(user_id, key)), key
            )
            old, project_id = session.conversation_id, DEFAULT_PROJECT
            if old is not None:
                project_id = find_conversation(tx, user_id, old).project_id
            return _start_conversation(tx, session, project_id)

        return await self._database.write(clear)


def count_run(tx: Transaction, run_id: int, *, messages: int, now: float) -> None:
    """Add the messages and the settled tokens of a run that ends to its session, if it has one."""
    tx.execute(_COUNT_RUN, its_run=run_id, messages=messages, now=now)


def open_session(
    tx: Transaction, user_id: str, key: str, *, agent_id: str, project_id: str
) -> Session:
    """Return the session for a message, creating it if needed; lock its name.

    Not its row: the end of a run locks the lane first, and then the row to update the counts.
    """
    if not 0 < len(key) <= MAX_KEY_LENGTH:
        raise BadRequest(
            f"a session key must have 1 to {MAX_KEY_LENGTH} characters (got {len(key)})."
        )
    tx.lock_name(_lock_name(user_id, key))
    row = tx.fetch_one(_SELECT_SESSION, **_key_values(user_id, key))
    if row is None:
        find_project(tx, user_id, project_id)
        values = {"key": key, "user_id": user_id, "agent_id": agent_id}
        now = time()
        tx.execute(_INSERT_SESSION, **values, created_at=now, updated_at=now)
        row = tx.fetch_one(_SELECT_SESSION, **_key_values(user_id, key))
    session = _require_session(row, key)
    return (
        session
        if session.conversation_id is not None
        else _start_conversation(tx, session, project_id)
    )


def _start_conversation(tx: Transaction, session: Session, project_id: str) -> Session:
    user_id, key = session.user_id, session.key
    conversation_id = insert_conversation(
        tx, user_id, project_id=project_id, agent_id=session.agent_id
    )
    tx.execute(
        _UPDATE_CONVERSATION,
        **_key_values(user_id, key),
        new_conversation=conversation_id,
        now=time(),
    )
    return _require_session(tx.fetch_one(_SELECT_SESSION, **_key_values(user_id, key)), key)


def _lock_name(user_id: str, key: str) -> str:
    return f"session\n{user_id}\n{key}"


def _key_values(user_id: str, key: str) -> dict[str, str]:
    return {"its_user": user_id, "its_key": key}


def _require_session(row: Row | None, key: str) -> Session:
    if row is None:
        raise NotFound(f"there is no session {key!r:.80}.")
    return Session(*row)


# -- clients that send their history --------------------------------------------------------------

_UPDATE_DIGEST = statement(
    update(runs).where(runs.c.id == bindparam("run_id")).values(said_digest=bindparam("digest"))
)
_SELECT_BY_DIGEST = statement(
    select(runs.c.id, runs.c.conversation_id, sessions.c.key)
    .join(conversations, conversations.c.head_id == runs.c.id)
    .join(sessions, sessions.c.conversation_id == runs.c.conversation_id)
    .where(
        runs.c.user_id == bindparam("its_user"),
        runs.c.said_digest == bindparam("digest"),
        sessions.c.user_id == bindparam("its_user"),
    )
    .order_by(runs.c.id.desc())
    .limit(1)
)
_SELECT_OPEN_RUN = statement(
    select(runs.c.id)
    .where(runs.c.conversation_id == bindparam("conversation_id"), IS_OPEN)
    .limit(1)
)
_CLEAR_DIGEST = statement(
    update(runs)
    .where(runs.c.id == bindparam("run_id"), runs.c.said_digest == bindparam("digest"))
    .values(said_digest=None)
)


class ClientHistories:
    """Sessions of clients that send their whole history with each request.

    A session is found by a digest of its messages, or imported with its history.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def import_session(
        self,
        user_id: str,
        key: str,
        *,
        agent_id: str,
        project_id: str,
        exchanges: Sequence[Sequence[NewMessage]],
    ) -> Session:
        """Create a session whose conversation contains these exchanges, atomically."""
        for exchange in exchanges:
            check_messages(exchange)

        def create(tx: Transaction) -> Session:
            session = open_session(tx, user_id, key, agent_id=agent_id, project_id=project_id)
            assert session.conversation_id is not None
            conversation = find_conversation(tx, user_id, session.conversation_id, lock=True)
            if (
                conversation.head_id is not None
                or tx.fetch_one(_SELECT_OPEN_RUN, conversation_id=conversation.id) is not None
            ):
                raise BadRequest(f"the session {key!r:.80} has already started.")
            last_id: int | None = None
            for exchange in exchanges:
                last_id = insert_ended_run(
                    tx, conversation, exchange, parent_id=last_id, origin="user"
                )
            if last_id is not None:
                move_head(tx, conversation.id, expected=None, to=last_id)
            return session

        return await self._database.write(create)

    async def save_digest(self, user_id: str, run_id: int, digest: str) -> None:
        """Store the digest of all messages up to the end of a run, to find its conversation."""

        def save(tx: Transaction) -> None:
            find_node(tx, user_id, run_id)
            tx.execute(_UPDATE_DIGEST, run_id=run_id, digest=digest)

        await self._database.write(save)

    async def claim_session(self, user_id: str, digest: str) -> str | None:
        """Claim the session whose history has this digest, and return its key.

        Only one caller gets it: the digest is removed.
        """

        def claim(tx: Transaction) -> str | None:
            row = tx.fetch_one(_SELECT_BY_DIGEST, its_user=user_id, digest=digest)
            if row is None:
                return None
            run_id, conversation_id, key = row
            # Locked, so that the conversation cannot change before the next question.
            conversation = find_conversation(tx, user_id, conversation_id, lock=True)
            if (
                conversation.head_id != run_id
                or tx.fetch_one(_SELECT_OPEN_RUN, conversation_id=conversation.id) is not None
            ):
                return None
            return key if tx.execute(_CLEAR_DIGEST, run_id=run_id, digest=digest) == 1 else None

        return await self._database.write(claim)
