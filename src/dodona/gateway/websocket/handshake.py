"""Authentication of a connection, by the upgrade request or the first frame."""

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
from dodona.gateway.security.caller import CALLER_KEY, Caller
from dodona.gateway.state import GatewayState
from dodona.gateway.websocket.frame import parse_frame
from dodona.gateway.websocket.protocol import TOKEN_TIMEOUT_SECONDS, UNAUTHORIZED_CLOSE_CODE
from dodona.gateway.websocket.writer import FrameWriter


@dataclass(frozen=True, slots=True)
class Identity:
    """The caller of a connection. `token` is None for the operator."""

    caller: Caller
    token: str | None = None


def identity_from_scope(connection: HTTPConnection) -> Identity | None:
    """Return the identity from the upgrade request; None if the first frame must have a token."""
    caller: Caller | None = connection.scope.get(CALLER_KEY)
    return Identity(caller, bearer_token(connection.scope)) if caller is not None else None


async def identity_from_token(
    state: GatewayState, connection: HTTPConnection, token: str
) -> Identity | None:
    """Return the identity of a token; None if it is invalid or rate limited."""
    try:
        return Identity(await authenticate(state, connection, token), token)
    except (Unauthorized, TooManyRequests):
        return None


async def receive_identity(
    state: GatewayState,
    connection: HTTPConnection,
    *,
    receive: Receive,
    writer: FrameWriter,
    timeout_seconds: float = TOKEN_TIMEOUT_SECONDS,
) -> Identity | None:
    """Wait for a token in the first frame. Without a valid one, close the connection."""
    identity = None
    try:
        async with asyncio.timeout(timeout_seconds):
            message = await receive()
        if message["type"] == "websocket.disconnect":
            return None
        document = parse_frame(message, state.settings.max_head_bytes)
        if is_token_frame(document):
            identity = await identity_from_token(state, connection, token_in(document))
    except (DodonaError, TimeoutError):
        pass
    if identity is None:
        await writer.close(
            UNAUTHORIZED_CLOSE_CODE, 'The first frame must be {"token": …} with a valid token.'
        )
    return identity


def is_token_frame(document: Mapping[str, Any]) -> bool:
    """Whether a first frame has a token. One that is malformed is a token too, an invalid one."""
    return "token" in document


def token_in(document: Mapping[str, Any]) -> str:
    """Return the token of a frame; "", which is never valid, unless it is `{"token": TEXT}`."""
    token = document["token"]
    return token if isinstance(token, str) and len(document) == 1 else ""
