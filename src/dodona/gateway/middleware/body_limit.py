"""The body of a request on its way in: not too much of it, and not too slowly."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive

from dodona.gateway.errors import BodyTooLarge, RequestTimeout
from dodona.gateway.settings import GatewaySettings

_MAX_DISCARDED_BYTES = 8 << 20  # bytes
_DISCARD_TIMEOUT_SECONDS = 2.0  # seconds


class LimitedBody:
    """Counts what comes in, whatever the head of the request said of it."""

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
                f"the body did not come within {self._settings.body_timeout:g} seconds."
            ) from None
        if self._received_bytes > self._settings.max_body_bytes:
            raise body_too_large(self._settings)
        return message

    async def discard(self) -> None:
        """Read what is still coming, within reason.

        A connection closed with bytes unread is reset, and the answer to them may be lost.
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
    return BodyTooLarge(
        f"the body is larger than {settings.max_body_bytes:,} bytes.", hint="Send less at once."
    )
