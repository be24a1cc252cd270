"""Conversations that are found by what was said in them, and those that begin with a past."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, select, update

from dodona.core.domain.conversations.conversation import NewMessage
from dodona.core.domain.conversations.sessions import Session
from dodona.core.errors import BadRequest
from dodona.store.conversations.conversations import insert_ended_run, move_head
from dodona.store.conversations.messages import check_messages
from dodona.store.conversations.nodes import find_conversation, find_node
from dodona.store.conversations.sessions import open_session
from dodona.store.db.database import Database, Transaction
from dodona.store.db.statements import statement
from dodona.store.schema import IS_OPEN, conversations, runs, sessions

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
    """The conversations of clients that recite."""

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
        """A new session in whose conversation all this was said, at once or not at all."""
        for exchange in exchanges:
            check_messages(exchange)

        def begin(tx: Transaction) -> Session:
            session = open_session(tx, user_id, key, agent_id=agent_id, project_id=project_id)
            assert session.conversation_id is not None
            talk = find_conversation(tx, user_id, session.conversation_id, lock=True)
            if (
                talk.head_id is not None
                or tx.fetch_one(_SELECT_OPEN_RUN, conversation_id=talk.id) is not None
            ):
                raise BadRequest(f"the session {key!r:.80} has begun already.")
            last: int | None = None
            for exchange in exchanges:
                last = insert_ended_run(tx, talk, exchange, parent_id=last, origin="user")
            if last is not None:
                move_head(tx, talk.id, expected=None, to=last)
            return session

        return await self._database.write(begin)

    async def save_digest(self, user_id: str, run_id: int, digest: str) -> None:
        """Let a conversation be found by what was said up to the end of a run."""

        def keep(tx: Transaction) -> None:
            find_node(tx, user_id, run_id)
            tx.execute(_UPDATE_DIGEST, run_id=run_id, digest=digest)

        await self._database.write(keep)

    async def claim_session(self, user_id: str, digest: str) -> str | None:
        """The key of a session that has just this to go on from, for the caller alone."""

        def take(tx: Transaction) -> str | None:
            found = tx.fetch_one(_SELECT_BY_DIGEST, its_user=user_id, digest=digest)
            if found is None:
                return None
            run_id, conversation_id, key = found
            # Locked, so that nobody goes on there between this look and the next question.
            talk = find_conversation(tx, user_id, conversation_id, lock=True)
            if (
                talk.head_id != run_id
                or tx.fetch_one(_SELECT_OPEN_RUN, conversation_id=talk.id) is not None
            ):
                return None
            return key if tx.execute(_CLEAR_DIGEST, run_id=run_id, digest=digest) == 1 else None

        return await self._database.write(take)
