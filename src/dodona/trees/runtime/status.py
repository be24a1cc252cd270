"""The three statuses of a node."""

from __future__ import annotations

from enum import Enum


class Status(Enum):
    """The result of a tick. RUNNING: tick the node again after the next wake."""

    SUCCESS = "success"
    FAILURE = "failure"
    RUNNING = "running"

    # Members are singletons; the identity hash saves a Python call per lookup.
    __hash__ = object.__hash__

    def __str__(self) -> str:
        return self.value


SUCCESS = Status.SUCCESS
FAILURE = Status.FAILURE
RUNNING = Status.RUNNING
