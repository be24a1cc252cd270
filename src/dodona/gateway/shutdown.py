"""How the gateway ends: first runs may finish, then streams are ended."""

from __future__ import annotations

import asyncio


class Shutdown:
    """Set in two steps, by whoever stops the server."""

    def __init__(self) -> None:
        self._finished = asyncio.Event()
        self.has_started = False

    def start(self) -> None:
        """Runs are finishing; streams go on, and may end without a last chunk."""
        self.has_started = True

    def finish(self) -> None:
        """Whoever still waits for something is sent away."""
        self.has_started = True
        self._finished.set()

    async def wait_finished(self) -> None:
        """Until nothing may be waited for any more."""
        await self._finished.wait()
