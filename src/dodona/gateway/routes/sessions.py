"""Sessions: conversations of a peer with an agent through a channel."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import Meta

from dodona.agent.views.sessions import SessionDocument, SessionHistory
from dodona.core.domain.conversations.sessions import MAX_KEY_LENGTH
from dodona.core.json_document import JsonDocument, RequestDocument
from dodona.gateway.http.operation import Routes
from dodona.gateway.http.parameter import text, up_to, whole
from dodona.gateway.http.request import ApiRequest

routes = Routes()

BeforeRun: TypeAlias = Annotated[int, whole("Only runs before this one: `next` of a page.", 1)]
RunLimit: TypeAlias = Annotated[int, whole("Maximum number of runs to return.", 1, 200)]


class SessionList(JsonDocument):
    """A page of sessions."""

    sessions: list[SessionDocument]


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
    before: BeforeRun | None = None,
    limit: RunLimit = 50,
) -> SessionHistory:
    """List the messages of the latest runs of a session, oldest first.

    Summarised messages are included.
    """
    return await request.api.sessions.history(
        request.user_id, key, before=before, limit=limit, token=request.caller.token
    )


@routes.post("/api/sessions/clear", errors=(404,))
async def clear_session(request: ApiRequest, body: SessionToClear) -> SessionDocument:
    """Start a new conversation with the next message of a session."""
    return await request.api.sessions.clear(request.user_id, body.key, token=request.caller.token)
