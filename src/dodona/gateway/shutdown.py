"""How the gateway ends: first runs may finish, then streams are ended."""

from __future__ import annotations

import asyncio


class Shutdown:
    """Set in two steps, by whoever stops the server."""

    def __init__(self) -> None:
        self._ended = asyncio.Event()
        self.is_leaving = False

    def shutdown(self) -> None:
        """Runs are finishing; streams go on, and may end without a last chunk."""
        self.is_leaving = True

    def end(self) -> None:
        """Whoever still waits for something is sent away."""
        self.is_leaving = True
        self._ended.set()

    async def wait(self) -> None:
        """Until nothing may be waited for any more."""
        await self._ended.wait()
