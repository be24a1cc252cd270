"""Storage of sessions, by key, each with its current conversation.

Sessions are never deleted. After it is cleared, a session continues in a new conversation.
"""

from __future__ import annotations

from time import time

from sqlalchemy import bindparam, select, update

from dodona.core.domain.conversations.sessions import MAX_KEY_LENGTH, Session
from dodona.core.domain.projects import DEFAULT_PROJECT
from dodona.core.errors import BadRequest, NotFound
from dodona.store.conversations.conversations import insert_conversation
from dodona.store.conversations.nodes import find_conversation
from dodona.store.db.database import Database, Row, StoreOperation, Transaction
from dodona.store.db.statements import statement, upsert
from dodona.store.projects.projects import find_project
from dodona.store.schema import sessions

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
_INSERT_FIELDS = ("key", "user_id", "agent_id", "created_at", "updated_at")
_INSERT_SESSION = upsert(
    sessions,
    lambda add: (
        # On a conflict with another user's session, the caller finds none of its own.
        add.values({name: bindparam(name) for name in _INSERT_FIELDS}).on_conflict_do_nothing()
    ),
)
_UPDATE_CONVERSATION = statement(
    update(sessions)
    .where(*_BY_KEY_AND_USER)
    .values(conversation_id=bindparam("new_conversation"), updated_at=bindparam("now"))
)
_ADD_USAGE = statement(
    update(sessions)
    .where(*_BY_KEY_AND_USER)
    .values(
        message_count=sessions.c.message_count + bindparam("messages"),
        input_tokens=sessions.c.input_tokens + bindparam("more_input"),
        output_tokens=sessions.c.output_tokens + bindparam("more_output"),
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

    async def open(
        self, user_id: str, key: str, *, agent_id: str, project_id: str = DEFAULT_PROJECT
    ) -> Session:
        """Return the session for a message, creating it and its conversation if needed."""
        return await self._database.write(
            lambda tx: open_session(tx, user_id, key, agent_id=agent_id, project_id=project_id)
        )

    async def clear(self, user_id: str, key: str) -> Session:
        """Start a new conversation in the same project. The old one and the counts stay."""

        def clear(tx: Transaction) -> Session:
            tx.lock_name(_lock_name(key))
            session = _require_session(
                tx.fetch_one(_SELECT_SESSION, **_key_values(user_id, key)), key
            )
            old, project_id = session.conversation_id, DEFAULT_PROJECT
            if old is not None:
                project_id = find_conversation(tx, user_id, old).project_id
            return _start_conversation(tx, session, project_id)

        return await self._database.write(clear)

    def add_counts(
        self, user_id: str, key: str, *, messages: int, input_tokens: int, output_tokens: int
    ) -> StoreOperation[bool]:
        """Return an operation that adds the counts of a run; see `add_session_usage`."""
        return lambda tx: add_session_usage(
            tx,
            user_id,
            key,
            messages=messages,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
        )


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
    tx.lock_name(_lock_name(key))
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


def add_session_usage(
    tx: Transaction,
    user_id: str,
    key: str,
    *,
    messages: int,
    input_tokens: int,
    output_tokens: int,
) -> bool:
    """Add the counts of a run to its session; return False if the user has no such session."""
    count = tx.execute(
        _ADD_USAGE,
        **_key_values(user_id, key),
        messages=messages,
        more_input=input_tokens,
        more_output=output_tokens,
        now=time(),
    )
    return count == 1


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


def _lock_name(key: str) -> str:
    return f"session\n{key}"


def _key_values(user_id: str, key: str) -> dict[str, str]:
    return {"its_user": user_id, "its_key": key}


def _require_session(row: Row | None, key: str) -> Session:
    if row is None:
        raise NotFound(f"there is no session {key!r:.80}.")
    return Session(*row)
