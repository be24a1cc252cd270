"""Messages of a session are taken in one after the other, in the order in which they came."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary


class SessionLocks:
    """A lock for each session in which something is being taken in; the others need none."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, session_key: str) -> asyncio.Lock:
        """To be held while a message is taken in. Who asks first, has it first."""
        lock = self._locks.get(session_key)
        if lock is None:
            lock = self._locks[session_key] = asyncio.Lock()
        return lock
