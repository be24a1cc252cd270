"""What stands behind the routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from dodona.agent.api import AgentApi
from dodona.core.domain.api_tokens import Tokens
from dodona.core.domain.audit import Audit, AuditEntry
from dodona.core.domain.routing import LiveRouter
from dodona.gateway.security.quotas import RequestQuotas
from dodona.gateway.security.token_cache import TokenCache
from dodona.gateway.settings import GatewaySettings
from dodona.gateway.shutdown import Shutdown
from dodona.net.redactor import Redactor
from dodona.telemetry.metrics import Metrics

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
    measures: Metrics = field(default_factory=Metrics)
    status: Status = nothing
    routing: LiveRouter = field(default_factory=LiveRouter)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayState:
    """`ready` tells what works; it raises when something does not."""

    agency: AgentApi
    rules: GatewaySettings
    ready: Ready
    document: Mapping[str, Any]  # OpenAPI
    known: TokenCache
    crowd: RequestQuotas
    beside: Beside
    redactor: Redactor | None = None
    closing: Shutdown = field(default_factory=Shutdown)

    @property
    def routing(self) -> LiveRouter:
        return self.beside.routing
