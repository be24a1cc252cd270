"""Sessions: who talks to which agent through which channel."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from dodona.core.domain.conversations.sessions import LONGEST_KEY
from dodona.core.errors import BadRequest
from dodona.gateway.http.json_schema import (
    Schema,
    document,
    listed,
    named,
    request,
    text,
    time,
    whole,
)
from dodona.gateway.http.operation import Operation, ResponseSpec
from dodona.gateway.http.parameter import Parameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response

_MOST: Final = 1_000_000


async def list_all(visit: ApiRequest) -> Response:
    limit, skip = visit.values["limit"], visit.values["skip"]
    found = await visit.agency.sessions.list(visit.user_id, limit=limit, skip=skip)
    return json_response({"sessions": found})


async def history(visit: ApiRequest) -> Response:
    key, limit = visit.values["key"], visit.values["limit"]
    if not key:
        raise BadRequest("say which session.", hint="Give its key, as GET /api/sessions lists it.")
    found = await visit.agency.sessions.history(visit.user_id, key, limit=limit)
    return json_response({"messages": found})


async def clear(visit: ApiRequest) -> Response:
    key = _key(await visit.json())
    return json_response(await visit.agency.sessions.clear(visit.user_id, key))


def _key(asked: dict[str, Any]) -> str:
    match asked:
        case {"key": str() as key, **rest} if not rest and 0 < len(key) <= LONGEST_KEY:
            return key
        case _:
            raise BadRequest(
                "say which session.", hint='Send {"key": "agent:channel:account:peer"}.'
            )


_LIMIT: Final = Parameter(name="limit", about="How many at most.", bounds=(1, 200), default=50)
_USAGE: Final = document({"input_tokens": whole(), "output_tokens": whole()})

SCHEMAS: Final[dict[str, Schema]] = {
    "Session": document(
        {
            "key": text("`agent:channel:account:peer`; a colon within a part is `%3A`."),
            "agent_id": text(),
            "message_count": whole(),
            "token_usage": _USAGE,
            "created_at": time(),
            "updated_at": time(),
        }
    ),
    "SessionList": document({"sessions": listed(named("Session"))}),
    "SessionHistory": document({"messages": listed(named("Exchange"))}),
    "SessionToClear": request({"key": text(minLength=1, maxLength=LONGEST_KEY)}, required=("key",)),
}

OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/sessions",
        name="listSessions",
        summary="Your sessions, the latest first.",
        handle=list_all,
        parameters=(
            _LIMIT,
            Parameter(name="skip", about="How many to pass over.", bounds=(0, _MOST), default=0),
        ),
        responses={200: ResponseSpec("A page of them.", "SessionList")},
        errors=(400, 503),
    ),
    Operation(
        method="GET",
        path="/api/sessions/history",
        name="readSession",
        summary="What was said in the last runs of a session, the oldest first.",
        handle=history,
        parameters=(Parameter(name="key", about="Which session."), _LIMIT),
        responses={200: ResponseSpec("Its messages.", "SessionHistory")},
        errors=(400, 404, 503),
    ),
    Operation(
        method="POST",
        path="/api/sessions/clear",
        name="clearSession",
        summary="Let the next message of a session begin a new conversation.",
        handle=clear,
        body="SessionToClear",
        responses={200: ResponseSpec("The session.", "Session")},
        errors=(400, 404, 408, 413, 415, 503),
    ),
)
