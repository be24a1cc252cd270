"""Methods to list and clear sessions and read their history."""

from __future__ import annotations

from typing import Any, Final

from dodona.core.domain.conversations.sessions import MAX_KEY_LENGTH
from dodona.gateway.websocket.call import Call, RpcMethod
from dodona.gateway.websocket.parameter import MethodParameter

_MAX_SKIP: Final = 10**9


async def list_sessions(call: Call) -> dict[str, Any]:
    """Return a page of the caller's sessions."""
    limit, skip = call.params["limit"], call.params["skip"]
    return {"sessions": await call.api.sessions.list(call.user_id, limit=limit, skip=skip)}


async def clear_session(call: Call) -> dict[str, Any]:
    """Make the next message of a session start a new conversation."""
    key = call.params["session_key"]
    return {"session": await call.api.sessions.clear(call.user_id, key)}


async def get_history(call: Call) -> dict[str, Any]:
    """Return the latest messages of a session."""
    key, limit = call.params["session_key"], call.params["limit"]
    messages = await call.api.sessions.history(call.user_id, key, limit=limit)
    return {"session_key": key, "messages": messages}


_SESSION_KEY: Final = MethodParameter(
    name="session_key",
    description="The session key, as returned by `chat.send` and `session.list`.",
    is_required=True,
    max_length=MAX_KEY_LENGTH,
)
_LIMIT: Final = MethodParameter(
    name="limit", description="Maximum number to return.", bounds=(1, 200), default=50
)

METHODS: Final = (
    RpcMethod(
        name="chat.history",
        description="List the latest messages of a session, oldest first.",
        result="`session_key`, and `messages`: a list.",
        handle=get_history,
        parameters=(_SESSION_KEY, _LIMIT),
    ),
    RpcMethod(
        name="session.list",
        description="List your sessions, most recently active first.",
        result="`sessions`: a list of keys with their agents, counts and usage.",
        handle=list_sessions,
        parameters=(
            _LIMIT,
            MethodParameter(
                name="skip",
                description="Number to skip.",
                bounds=(0, _MAX_SKIP),
                default=0,
            ),
        ),
    ),
    RpcMethod(
        name="session.clear",
        description="Start a new conversation with the next message. The old one is kept.",
        result="`session`: as in `session.list`.",
        handle=clear_session,
        scope="chat",
        parameters=(_SESSION_KEY,),
    ),
)
