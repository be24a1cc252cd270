"""What stands behind the routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from dodona.agent.agency import Agency
from dodona.core.measures import Measures
from dodona.core.routing import Routing
from dodona.gateway.closing import Closing
from dodona.gateway.rules import Rules
from dodona.net.redactor import Redactor

Ready: TypeAlias = Callable[[], Awaitable[Mapping[str, Any]]]
Status: TypeAlias = Ready


async def nothing() -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """`ready` tells what works; it raises when something does not. `status` tells what is done."""

    agency: Agency
    rules: Rules
    ready: Ready
    document: Mapping[str, Any]  # OpenAPI
    redactor: Redactor | None = None
    measures: Measures = field(default_factory=Measures)
    status: Status = nothing
    routing: Routing = field(default_factory=Routing)
    closing: Closing = field(default_factory=Closing)
