"""Limits on the size and duration of request bodies."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive

from dodona.gateway.errors import BodyTooLarge, RequestTimeout
from dodona.gateway.settings import GatewaySettings

_MAX_DISCARDED_BYTES = 8 << 20
_DISCARD_TIMEOUT_SECONDS = 2.0


class LimitedBody:
    """Enforces the limits on the received bytes, not on the Content-Length header."""

    def __init__(self, receive: Receive, settings: GatewaySettings, *, has_body: bool) -> None:
        self._receive = receive
        self._settings = settings
        self._deadline = asyncio.get_running_loop().time() + settings.body_timeout
        self._received_bytes = 0
        self.is_complete = not has_body

    async def receive(self) -> Message:
        if self.is_complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive_next()
        except TimeoutError:
            raise RequestTimeout(
                f"the body did not arrive within {self._settings.body_timeout:g} seconds."
            ) from None
        if self._received_bytes > self._settings.max_body_bytes:
            raise body_too_large(self._settings)
        return message

    async def discard(self) -> None:
        """Read and drop the rest of the body, up to a limit.

        Closing a connection with unread bytes resets it, and the client may lose the response.
        """
        try:
            async with asyncio.timeout(_DISCARD_TIMEOUT_SECONDS):
                while not self.is_complete and self._received_bytes < _MAX_DISCARDED_BYTES:
                    await self._receive_next()
        except TimeoutError:
            pass

    async def _receive_next(self) -> Message:
        message = await self._receive()
        self._received_bytes += len(message.get("body", b""))
        self.is_complete = not message.get("more_body", False)
        return message


def body_too_large(settings: GatewaySettings) -> BodyTooLarge:
    """Return the error for a body above the configured limit."""
    return BodyTooLarge(
        f"the body is larger than {settings.max_body_bytes:,} bytes.", hint="Send a smaller body."
    )
