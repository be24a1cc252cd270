"""Shutdown of the gateway: runs finish first, then streams are closed."""

from __future__ import annotations

import asyncio


class Shutdown:
    """Signals the two phases of a shutdown. Set by the server."""

    def __init__(self) -> None:
        self._finished = asyncio.Event()
        self.has_started = False

    def start(self) -> None:
        """Begin: runs finish while streams stay open. A stream may end without a last chunk."""
        self.has_started = True

    def finish(self) -> None:
        """End all waiting requests and streams."""
        self.has_started = True
        self._finished.set()

    async def wait_finished(self) -> None:
        """Wait until requests and streams must end."""
        await self._finished.wait()
