"""Sessions: which there are, what was said in one, and beginning anew."""

from __future__ import annotations

from typing import Any, Final

from dodona.core.domain.conversations.sessions import MAX_KEY_LENGTH
from dodona.gateway.websocket.call import Call, Method
from dodona.gateway.websocket.parameter import MethodParameter

_MAX_SKIP: Final = 10**9


async def list_sessions(call: Call) -> dict[str, Any]:
    limit, skip = call.params["limit"], call.params["skip"]
    return {"sessions": await call.api.sessions.list(call.user_id, limit=limit, skip=skip)}


async def clear_session(call: Call) -> dict[str, Any]:
    key = call.params["session_key"]
    return {"session": await call.api.sessions.clear(call.user_id, key)}


async def get_history(call: Call) -> dict[str, Any]:
    key, limit = call.params["session_key"], call.params["limit"]
    said = await call.api.sessions.history(call.user_id, key, limit=limit)
    return {"session_key": key, "messages": said}


_SESSION_KEY: Final = MethodParameter(
    name="session_key",
    description="Which session: as `chat.send` and `session.list` tell it.",
    is_required=True,
    max_length=MAX_KEY_LENGTH,
)
_LIMIT: Final = MethodParameter(
    name="limit", description="How many at most.", bounds=(1, 200), default=50
)

METHODS: Final = (
    Method(
        name="chat.history",
        description="What was said last in a session, the oldest first.",
        result="`session_key`, and `messages`: a list.",
        handle=get_history,
        parameters=(_SESSION_KEY, _LIMIT),
    ),
    Method(
        name="session.list",
        description="Your sessions, the latest first.",
        result="`sessions`: a list of keys with their agents, counts and usage.",
        handle=list_sessions,
        parameters=(
            _LIMIT,
            MethodParameter(
                name="skip",
                description="How many to pass over first.",
                bounds=(0, _MAX_SKIP),
                default=0,
            ),
        ),
    ),
    Method(
        name="session.clear",
        description="Let the next message of a session begin a new conversation; the old one is kept.",
        result="`session`: as in the list.",
        handle=clear_session,
        scope="chat",
        parameters=(_SESSION_KEY,),
    ),
)
