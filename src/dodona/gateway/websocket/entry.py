"""Who is at the other end of a connection: known when it comes, or by its first frame."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.requests import HTTPConnection
from starlette.types import Receive

from dodona.core.errors import DodonaError
from dodona.gateway.caller import Caller, caller_of
from dodona.gateway.gate import Gate
from dodona.gateway.websocket.frame import parse
from dodona.gateway.websocket.limits import TOKEN_SECONDS, UNKNOWN_CALLER
from dodona.gateway.websocket.line import Line


async def caller_at_once(_gate: Gate, connection: HTTPConnection) -> Caller | None:
    """Known without a token frame; None when one must come first."""
    return caller_of(connection)


async def caller_of_token(_gate: Gate, connection: HTTPConnection, _text: str) -> Caller | None:
    """Whose token it is; None when it is nobody's. On loopback nobody needs one."""
    return caller_of(connection)


async def introduced(
    gate: Gate,
    connection: HTTPConnection,
    *,
    receive: Receive,
    line: Line,
    seconds: float = TOKEN_SECONDS,
) -> Caller | None:
    """Who comes with a token, where one is required; without a good one they are sent away."""
    caller = None
    try:
        async with asyncio.timeout(seconds):
            message = await receive()
        if message["type"] == "websocket.disconnect":
            return None
        document = parse(message, gate.rules.largest_head)
        if is_token(document):
            caller = await caller_of_token(gate, connection, document["token"])
    except (DodonaError, TimeoutError):
        pass
    if caller is None:
        await line.close(UNKNOWN_CALLER, 'The first frame must be {"token": …}, with a good one.')
    return caller


def is_token(document: Mapping[str, Any]) -> bool:
    return isinstance(document.get("token"), str) and len(document) == 1
