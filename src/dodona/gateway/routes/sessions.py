"""Sessions: conversations of a peer with an agent through a channel."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from dodona.agent.views.exchanges import OracleExchange
from dodona.agent.views.sessions import SessionDocument
from dodona.core.domain.conversations.sessions import MAX_KEY_LENGTH
from dodona.core.json_document import JsonDocument, RequestDocument
from dodona.gateway.http.operation import Routes
from dodona.gateway.http.parameter import text, up_to, whole
from dodona.gateway.http.request import ApiRequest

routes = Routes()


class SessionList(JsonDocument):
    """A page of sessions."""

    sessions: list[SessionDocument]


class SessionHistory(JsonDocument):
    """The messages, oldest first."""

    messages: list[OracleExchange]


class SessionToClear(RequestDocument):
    """The session to clear."""

    key: Annotated[str, Meta(min_length=1, max_length=MAX_KEY_LENGTH)]


@routes.get("/api/sessions")
async def list_sessions(
    request: ApiRequest,
    limit: Annotated[int, up_to(200)] = 50,
    skip: Annotated[int, whole("Number to skip.", 0, 1_000_000)] = 0,
) -> SessionList:
    """List your sessions, most recently active first."""
    sessions = await request.api.sessions.list(
        request.user_id, limit=limit, skip=skip, token=request.caller.token
    )
    return SessionList(sessions)


@routes.get("/api/sessions/history", errors=(404,))
async def read_session(
    request: ApiRequest,
    key: Annotated[str, text("The key of the session.", max_length=MAX_KEY_LENGTH)],
    limit: Annotated[int, up_to(200)] = 50,
) -> SessionHistory:
    """List the messages of the latest runs of a session, oldest first."""
    messages = await request.api.sessions.history(
        request.user_id, key, limit=limit, token=request.caller.token
    )
    return SessionHistory(messages)


@routes.post("/api/sessions/clear", errors=(404,))
async def clear_session(request: ApiRequest, body: SessionToClear) -> SessionDocument:
    """Start a new conversation with the next message of a session."""
    return await request.api.sessions.clear(request.user_id, body.key, token=request.caller.token)
