"""Conversations of clients that send their whole history with each request.

A conversation is found by a digest of its messages, or imported with its history.
"""

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
    """The conversations of clients that send their history."""

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
