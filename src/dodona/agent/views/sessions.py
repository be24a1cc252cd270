"""Views of sessions and their messages."""

from __future__ import annotations

from typing import Any, Final

from dodona.agent.views.documents import iso
from dodona.agent.views.exchanges import exchange_json
from dodona.core.domain.conversations.sessions import Session
from dodona.store import Store

_NO_TOKEN_LIMIT: Final = 2**31 - 1  # the number of runs is limited instead


class SessionViews:
    """Sessions of all users; each call names the user."""

    def __init__(self, storage: Store) -> None:
        self._storage = storage

    async def list(self, user_id: str, *, limit: int = 50, skip: int = 0) -> list[dict[str, Any]]:
        """List sessions, the most recent first."""
        sessions = await self._storage.sessions.list(user_id, limit=limit, skip=skip)
        return [_as_json(session) for session in sessions]

    async def history(self, user_id: str, key: str, *, limit: int = 50) -> list[dict[str, Any]]:
        """Messages of the last runs of a session's conversation, oldest first."""
        session = await self._storage.sessions.get(user_id, key)
        if session.conversation_id is None:
            return []
        window = await self._storage.conversations.load_window(
            user_id, session.conversation_id, budget=_NO_TOKEN_LIMIT, max_runs=limit
        )
        return [exchange_json(message) for message in window.messages]

    async def clear(self, user_id: str, key: str) -> dict[str, Any]:
        """Start a new conversation with the next message. Earlier messages stay stored."""
        return _as_json(await self._storage.sessions.clear(user_id, key))


def _as_json(session: Session) -> dict[str, Any]:
    return {
        "key": session.key,
        "agent_id": session.agent_id,
        "message_count": session.message_count,
        "token_usage": {
            "input_tokens": session.input_tokens,
            "output_tokens": session.output_tokens,
        },
        "created_at": iso(session.created_at),
        "updated_at": iso(session.updated_at),
    }
