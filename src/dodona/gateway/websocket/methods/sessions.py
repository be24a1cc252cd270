"""Methods to list and clear sessions and read their history."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from dodona.core.domain.conversations.sessions import MAX_KEY_LENGTH
from dodona.gateway.http.parameter import text, up_to, whole
from dodona.gateway.websocket.call import Call
from dodona.gateway.websocket.method import method

SessionKey: TypeAlias = Annotated[
    str,
    text(
        "The session key, as returned by `chat.send` and `session.list`.",
        max_length=MAX_KEY_LENGTH,
    ),
]


@method("chat.history", result="`session_key`, and `messages`: a list.")
async def get_history(
    call: Call, session_key: SessionKey, limit: Annotated[int, up_to(200)] = 50
) -> dict[str, Any]:
    """List the latest messages of a session, oldest first."""
    messages = await call.api.sessions.history(call.user_id, session_key, limit=limit)
    return {"session_key": session_key, "messages": messages}


@method("session.list", result="`sessions`: a list of keys with their agents, counts and usage.")
async def list_sessions(
    call: Call,
    limit: Annotated[int, up_to(200)] = 50,
    skip: Annotated[int, whole("Number to skip.", 0, 10**9)] = 0,
) -> dict[str, Any]:
    """List your sessions, most recently active first."""
    return {"sessions": await call.api.sessions.list(call.user_id, limit=limit, skip=skip)}


@method("session.clear", result="`session`: as in `session.list`.", scope="chat")
async def clear_session(call: Call, session_key: SessionKey) -> dict[str, Any]:
    """Start a new conversation with the next message. The old one is kept."""
    return {"session": await call.api.sessions.clear(call.user_id, session_key)}
