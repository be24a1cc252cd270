"""What stands behind the routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from dodona.agent.api import AgentApi
from dodona.core.domain.routing import LiveRouter
from dodona.gateway.security.quotas import RequestQuotas
from dodona.gateway.security.token_cache import TokenCache
from dodona.gateway.settings import GatewaySettings
from dodona.gateway.shutdown import Shutdown
from dodona.net.redactor import Redactor
from dodona.store.accounts.api_tokens import ApiTokens
from dodona.store.accounts.audit import AuditLog
from dodona.telemetry.metrics import Metrics

ReadinessCheck: TypeAlias = Callable[[], Awaitable[Mapping[str, Any]]]
StatusProvider: TypeAlias = ReadinessCheck


async def empty_status() -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayServices:
    """What stands beside the agency: who may come in, what is noted and measured.

    Without `tokens` every token is wrong, and there is but the operator. `status` tells what is
    being done. Whoever has the `routing` may give it another router at any time.
    """

    tokens: ApiTokens | None = None
    audit: AuditLog | None = None
    metrics: Metrics = field(default_factory=Metrics)
    get_status: StatusProvider = empty_status
    routing: LiveRouter = field(default_factory=LiveRouter)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayState:
    """`ready` tells what works; it raises when something does not."""

    api: AgentApi
    settings: GatewaySettings
    check_readiness: ReadinessCheck
    openapi: Mapping[str, Any]  # OpenAPI
    token_cache: TokenCache
    quotas: RequestQuotas
    services: GatewayServices
    redactor: Redactor | None = None
    shutdown: Shutdown = field(default_factory=Shutdown)

    @property
    def routing(self) -> LiveRouter:
        return self.services.routing
