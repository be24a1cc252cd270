"""The three answers of a node."""

from __future__ import annotations

from enum import Enum


class Status(Enum):
    """RUNNING means: something will wake the tree, tick me again then."""

    SUCCESS = "success"
    FAILURE = "failure"
    RUNNING = "running"

    # Members are singletons; the identity hash spares a Python call per lookup.
    __hash__ = object.__hash__

    def __str__(self) -> str:
        return self.value


SUCCESS = Status.SUCCESS
FAILURE = Status.FAILURE
RUNNING = Status.RUNNING
