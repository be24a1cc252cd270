"""What stands behind the routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from dodona.agent.agency import Agency
from dodona.core.audit import Audit, AuditEntry
from dodona.core.measures import Measures
from dodona.core.routing import Routing
from dodona.core.tokens import Tokens
from dodona.gateway.closing import Closing
from dodona.gateway.crowd import Crowd
from dodona.gateway.known import KnownTokens
from dodona.gateway.rules import Rules
from dodona.net.redactor import Redactor

Ready: TypeAlias = Callable[[], Awaitable[Mapping[str, Any]]]
Status: TypeAlias = Ready


async def nothing() -> Mapping[str, Any]:
    return {}


class ReadableAudit(Audit, Protocol):
    async def page(
        self, *, since: float = 0.0, kind: str = "", before: int | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        """Entries, the newest first."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What stands beside the agency: who may come in, what is noted and measured.

    Without `tokens` every token is wrong, and there is but the operator. `status` tells what is
    being done. Whoever has the `routing` may give it another router at any time.
    """

    tokens: Tokens | None = None
    audit: ReadableAudit | None = None
    measures: Measures = field(default_factory=Measures)
    status: Status = nothing
    routing: Routing = field(default_factory=Routing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """`ready` tells what works; it raises when something does not."""

    agency: Agency
    rules: Rules
    ready: Ready
    document: Mapping[str, Any]  # OpenAPI
    known: KnownTokens
    crowd: Crowd
    beside: Beside
    redactor: Redactor | None = None
    closing: Closing = field(default_factory=Closing)

    @property
    def routing(self) -> Routing:
        return self.beside.routing
