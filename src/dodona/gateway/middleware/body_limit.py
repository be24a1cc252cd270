"""The body of a request on its way in: not too much of it, and not too slowly."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive

from dodona.gateway.errors import BodyTooLarge, RequestTimeout
from dodona.gateway.settings import GatewaySettings

_MOST_DISCARDED = 8 << 20  # bytes
_DISCARDING = 2.0  # seconds


class LimitedBody:
    """Counts what comes in, whatever the head of the request said of it."""

    def __init__(self, receive: Receive, rules: GatewaySettings, *, has_body: bool) -> None:
        self._receive = receive
        self._rules = rules
        self._deadline = asyncio.get_running_loop().time() + rules.body_seconds
        self._taken = 0
        self.is_whole = not has_body

    async def receive(self) -> Message:
        if self.is_whole:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._next()
        except TimeoutError:
            raise RequestTimeout(
                f"the body did not come within {self._rules.body_seconds:g} seconds."
            ) from None
        if self._taken > self._rules.largest_body:
            raise too_large(self._rules)
        return message

    async def discard(self) -> None:
        """Read what is still coming, within reason.

        A connection closed with bytes unread is reset, and the answer to them may be lost.
        """
        try:
            async with asyncio.timeout(_DISCARDING):
                while not self.is_whole and self._taken < _MOST_DISCARDED:
                    await self._next()
        except TimeoutError:
            pass

    async def _next(self) -> Message:
        message = await self._receive()
        self._taken += len(message.get("body", b""))
        self.is_whole = not message.get("more_body", False)
        return message


def too_large(rules: GatewaySettings) -> BodyTooLarge:
    return BodyTooLarge(
        f"the body is larger than {rules.largest_body:,} bytes.", hint="Send less at once."
    )
