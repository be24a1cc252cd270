"""Sessions: which there are, what was said in one, and beginning anew."""

from __future__ import annotations

from typing import Any, Final

from dodona.core.domain.conversations.sessions import LONGEST_KEY
from dodona.gateway.websocket.call import Call, Method
from dodona.gateway.websocket.parameter import Field

_MOST: Final = 10**9


async def listed(call: Call) -> dict[str, Any]:
    limit, skip = call.values["limit"], call.values["skip"]
    return {"sessions": await call.agency.sessions.list(call.user_id, limit=limit, skip=skip)}


async def cleared(call: Call) -> dict[str, Any]:
    key = call.values["session_key"]
    return {"session": await call.agency.sessions.clear(call.user_id, key)}


async def history(call: Call) -> dict[str, Any]:
    key, limit = call.values["session_key"], call.values["limit"]
    said = await call.agency.sessions.history(call.user_id, key, limit=limit)
    return {"session_key": key, "messages": said}


_KEY: Final = Field(
    name="session_key",
    about="Which session: as `chat.send` and `session.list` tell it.",
    is_required=True,
    longest=LONGEST_KEY,
)
_LIMIT: Final = Field(name="limit", about="How many at most.", bounds=(1, 200), default=50)

METHODS: Final = (
    Method(
        name="chat.history",
        about="What was said last in a session, the oldest first.",
        result="`session_key`, and `messages`: a list.",
        handle=history,
        fields=(_KEY, _LIMIT),
    ),
    Method(
        name="session.list",
        about="Your sessions, the latest first.",
        result="`sessions`: a list of keys with their agents, counts and usage.",
        handle=listed,
        fields=(
            _LIMIT,
            Field(name="skip", about="How many to pass over first.", bounds=(0, _MOST), default=0),
        ),
    ),
    Method(
        name="session.clear",
        about="Let the next message of a session begin a new conversation; the old one is kept.",
        result="`session`: as in the list.",
        handle=cleared,
        scope="chat",
        fields=(_KEY,),
    ),
)
