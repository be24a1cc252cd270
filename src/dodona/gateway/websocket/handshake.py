"""Who is at the other end of a connection: known when it comes, or by its first frame."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import HTTPConnection
from starlette.types import Receive

from dodona.core.errors import DodonaError, Unauthorized
from dodona.gateway.errors import TooManyRequests
from dodona.gateway.security.auth import authenticate, bearer_token
from dodona.gateway.security.caller import CALLER, Caller
from dodona.gateway.state import GatewayState
from dodona.gateway.websocket.frame import parse
from dodona.gateway.websocket.protocol import TOKEN_SECONDS, UNKNOWN_CALLER
from dodona.gateway.websocket.writer import FrameWriter


@dataclass(frozen=True, slots=True)
class Identity:
    """`token` is None for the operator, who needs none."""

    caller: Caller
    token: str | None = None


def visitor_at_once(connection: HTTPConnection) -> Identity | None:
    """Whom the turnstile knows by the head of the upgrade; None when a token must come first."""
    caller: Caller | None = connection.scope.get(CALLER)
    return Identity(caller, bearer_token(connection.scope)) if caller is not None else None


async def visitor_of_token(
    gate: GatewayState, connection: HTTPConnection, token: str
) -> Identity | None:
    """Whose token it is; None when it is nobody's, or comes too often."""
    try:
        return Identity(await authenticate(gate, connection, token), token)
    except (Unauthorized, TooManyRequests):
        return None


async def introduced(
    gate: GatewayState,
    connection: HTTPConnection,
    *,
    receive: Receive,
    line: FrameWriter,
    seconds: float = TOKEN_SECONDS,
) -> Identity | None:
    """Who comes with a token, where one is required; without a good one they are sent away."""
    visitor = None
    try:
        async with asyncio.timeout(seconds):
            message = await receive()
        if message["type"] == "websocket.disconnect":
            return None
        document = parse(message, gate.rules.largest_head)
        if is_token(document):
            visitor = await visitor_of_token(gate, connection, document["token"])
    except (DodonaError, TimeoutError):
        pass
    if visitor is None:
        await line.close(UNKNOWN_CALLER, 'The first frame must be {"token": …}, with a good one.')
    return visitor


def is_token(document: Mapping[str, Any]) -> bool:
    return isinstance(document.get("token"), str) and len(document) == 1
