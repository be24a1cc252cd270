"""A method that clients can call: what it takes, what it needs, and what it does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from dodona.gateway.websocket.call import Call
from dodona.gateway.websocket.field import Field

Handler: TypeAlias = Callable[[Call], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """What `handle` returns is the result, unless it has answered already."""

    name: str
    about: str
    result: str
    handle: Handler
    scope: str = "read"
    fields: tuple[Field, ...] = ()
