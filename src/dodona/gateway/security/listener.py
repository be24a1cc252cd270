"""Accepts connections without using up the file descriptors that open connections need."""

from __future__ import annotations

import errno
import resource
import socket
from contextlib import suppress
from typing import Any, Final

from dodona.gateway.security.connections import OVERLOADED_RESPONSE, ConnectionLimiter

MAX_OPEN_FILES: Final = 65_536
# Connections that are accepted but not counted yet use descriptors too: there are few of them.
_ACCEPTS_PER_TICK: Final = 8
_PAUSING_ERRORS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class GuardedListener(socket.socket):
    """A listening socket, taken over from another one, for asyncio's accept loop.

    The loop calls `accept` until it raises BlockingIOError. After a lack of descriptors or memory,
    asyncio logs the error and pauses for a second.
    """

    def __init__(self, listener: socket.socket, limiter: ConnectionLimiter) -> None:
        super().__init__(listener.family, listener.type, listener.proto, listener.detach())
        self._limiter = limiter
        self._accepted_count = 0
        self._is_pausing = False

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection. Above the limit of connections, refuse it at once."""
        while self._accepted_count < _ACCEPTS_PER_TICK and not self._is_pausing:
            self._accepted_count += 1
            connection, address = self._accept_next()
            if not self._limiter.is_full:
                return connection, address
            _refuse(connection)
        self._accepted_count = 0
        self._is_pausing = False
        raise BlockingIOError

    def _accept_next(self) -> tuple[socket.socket, Any]:
        try:
            return super().accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            self._accepted_count = 0
            raise
        except OSError as error:
            # asyncio goes on accepting within the same tick: the next call ends it.
            self._is_pausing = True
            if error.errno in _PAUSING_ERRORS:
                raise
            # asyncio does not pause for other errors, and would log them in a busy loop.
            raise OSError(errno.ENOBUFS, str(error)) from error


def _refuse(connection: socket.socket) -> None:
    with connection, suppress(OSError):
        connection.setblocking(False)
        connection.send(OVERLOADED_RESPONSE)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(65_536)  # closing with unread bytes could discard the response


def raise_open_file_limit() -> None:
    """Raise the soft limit of open files to the hard limit, or to a bound that is enough."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # some systems have a lower limit of their own
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
