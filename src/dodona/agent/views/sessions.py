"""Views of sessions and their messages."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from dodona.agent.views.exchanges import OracleExchange, exchange_document
from dodona.core.domain.api_tokens import ApiToken
from dodona.core.domain.conversations.sessions import Session
from dodona.core.json_document import JsonDocument, Timestamp
from dodona.store import Store

_MAX_SESSIONS: Final = 10_000  # of a user, searched for those of some agents
_NO_TOKEN_LIMIT: Final = 2**31 - 1  # the number of runs is limited instead


class SessionTokens(JsonDocument):
    """The tokens that a session has used."""

    input_tokens: int
    output_tokens: int


class SessionDocument(JsonDocument, kw_only=True):
    """A session."""

    key: Annotated[
        str,
        Meta(description="`agent:channel:account:peer`; a colon inside a part is written `%3A`."),
    ]
    agent_id: str
    message_count: int
    token_usage: SessionTokens
    created_at: Timestamp
    updated_at: Timestamp


class SessionViews:
    """Sessions of all users; each call names the user."""

    def __init__(self, storage: Store) -> None:
        self._storage = storage

    async def list(
        self, user_id: str, *, limit: int = 50, skip: int = 0, token: ApiToken | None = None
    ) -> list[SessionDocument]:
        """List sessions, the most recent first; with a token, those of its agents."""
        if token is None or token.limits.agents is None:
            sessions = await self._storage.sessions.list(user_id, limit=limit, skip=skip)
        else:
            found = await self._storage.sessions.list(user_id, limit=_MAX_SESSIONS)
            allowed = [each for each in found if token.limits.allows_agent(each.agent_id)]
            sessions = allowed[skip : skip + limit]
        return [_document(session) for session in sessions]

    async def history(
        self, user_id: str, key: str, *, limit: int = 50, token: ApiToken | None = None
    ) -> list[OracleExchange]:
        """Messages of the last runs of a session's conversation, oldest first."""
        session = await self._find(user_id, key, token)
        if session.conversation_id is None:
            return []
        window = await self._storage.conversations.load_window(
            user_id, session.conversation_id, budget=_NO_TOKEN_LIMIT, max_runs=limit
        )
        return [exchange_document(message) for message in window.messages]

    async def clear(
        self, user_id: str, key: str, *, token: ApiToken | None = None
    ) -> SessionDocument:
        """Start a new conversation with the next message. Earlier messages stay stored."""
        await self._find(user_id, key, token)
        return _document(await self._storage.sessions.clear(user_id, key))

    async def _find(self, user_id: str, key: str, token: ApiToken | None) -> Session:
        session = await self._storage.sessions.get(user_id, key)
        if token is not None:
            token.check_agent(session.agent_id)
        return session


def _document(session: Session) -> SessionDocument:
    return SessionDocument(
        key=session.key,
        agent_id=session.agent_id,
        message_count=session.message_count,
        token_usage=SessionTokens(session.input_tokens, session.output_tokens),
        created_at=Timestamp(session.created_at),
        updated_at=Timestamp(session.updated_at),
    )
