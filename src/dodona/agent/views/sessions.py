"""Views of sessions and their messages."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from dodona.agent.views.exchanges import OracleExchange, exchange_document
from dodona.core.domain.api_tokens import ApiToken
from dodona.core.domain.conversations.sessions import Session
from dodona.core.json_document import JsonDocument, NextBefore, Timestamp
from dodona.store import Store

_MAX_SESSIONS: Final = 10_000  # of a user, searched for those of some agents


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


class SessionHistory(JsonDocument):
    """The messages of a page, oldest first."""

    messages: list[OracleExchange]
    next: NextBefore


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
        self,
        user_id: str,
        key: str,
        *,
        before: int | None = None,
        limit: int = 50,
        token: ApiToken | None = None,
    ) -> SessionHistory:
        """Messages of the last runs of a session's conversation, also of summarised ones.

        `before` is the ID of a run: the `next` of the last page.
        """
        session = await self._find(user_id, key, token)
        if session.conversation_id is None:
            return SessionHistory([], None)
        window = await self._storage.conversations.load_history(
            user_id, session.conversation_id, before=before, max_runs=limit
        )
        return SessionHistory(
            [exchange_document(message) for message in window.messages],
            window.messages[0].run_id if window.is_truncated else None,
        )

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
