"""Sessions: conversations of a peer with an agent through a channel."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from dodona.core.domain.conversations.sessions import MAX_KEY_LENGTH
from dodona.core.errors import BadRequest
from dodona.gateway.http.json_schema import (
    Schema,
    array,
    date_time,
    integer,
    ref,
    request_object,
    response_object,
    string,
)
from dodona.gateway.http.operation import Operation, ResponseSpec
from dodona.gateway.http.parameter import RequestParameter
from dodona.gateway.http.request import ApiRequest
from dodona.gateway.http.responses import json_response

_MAX_SKIP: Final = 1_000_000


async def list_sessions(request: ApiRequest) -> Response:
    """List the sessions of the caller."""
    limit, skip = request.params["limit"], request.params["skip"]
    sessions = await request.api.sessions.list(request.user_id, limit=limit, skip=skip)
    return json_response({"sessions": sessions})


async def get_history(request: ApiRequest) -> Response:
    """Return the latest messages of a session."""
    key, limit = request.params["key"], request.params["limit"]
    if not key:
        raise BadRequest("key is required.", hint="GET /api/sessions lists the keys.")
    messages = await request.api.sessions.history(request.user_id, key, limit=limit)
    return json_response({"messages": messages})


async def clear_session(request: ApiRequest) -> Response:
    """Make the next message of a session start a new conversation."""
    key = _read_key(await request.json())
    return json_response(await request.api.sessions.clear(request.user_id, key))


def _read_key(body: dict[str, Any]) -> str:
    match body:
        case {"key": str() as key, **rest} if not rest and 0 < len(key) <= MAX_KEY_LENGTH:
            return key
        case _:
            raise BadRequest("key is required.", hint='Send {"key": "agent:channel:account:peer"}.')


_LIMIT: Final = RequestParameter(
    name="limit", description="Maximum number to return.", bounds=(1, 200), default=50
)
_USAGE: Final = response_object({"input_tokens": integer(), "output_tokens": integer()})

SCHEMAS: Final[dict[str, Schema]] = {
    "Session": response_object(
        {
            "key": string("`agent:channel:account:peer`; a colon inside a part is written `%3A`."),
            "agent_id": string(),
            "message_count": integer(),
            "token_usage": _USAGE,
            "created_at": date_time(),
            "updated_at": date_time(),
        }
    ),
    "SessionList": response_object({"sessions": array(ref("Session"))}),
    "SessionHistory": response_object({"messages": array(ref("Exchange"))}),
    "SessionToClear": request_object(
        {"key": string(minLength=1, maxLength=MAX_KEY_LENGTH)}, required=("key",)
    ),
}

OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/api/sessions",
        operation_id="listSessions",
        summary="List your sessions, most recently active first.",
        handler=list_sessions,
        parameters=(
            _LIMIT,
            RequestParameter(
                name="skip", description="Number to skip.", bounds=(0, _MAX_SKIP), default=0
            ),
        ),
        responses={200: ResponseSpec("A page of sessions.", "SessionList")},
        error_statuses=(400, 503),
    ),
    Operation(
        method="GET",
        path="/api/sessions/history",
        operation_id="readSession",
        summary="List the messages of the latest runs of a session, oldest first.",
        handler=get_history,
        parameters=(RequestParameter(name="key", description="The key of the session."), _LIMIT),
        responses={200: ResponseSpec("The messages.", "SessionHistory")},
        error_statuses=(400, 404, 503),
    ),
    Operation(
        method="POST",
        path="/api/sessions/clear",
        operation_id="clearSession",
        summary="Start a new conversation with the next message of a session.",
        handler=clear_session,
        body_schema="SessionToClear",
        responses={200: ResponseSpec("The session.", "Session")},
        error_statuses=(400, 404, 408, 413, 415, 503),
    ),
)
