"""The state that all requests share: services, settings, limits and caches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from dodona.agent.api import AgentApi
from dodona.core.domain.budgets import BudgetUnit
from dodona.core.domain.routing import LiveRouter
from dodona.core.json_document import JsonDocument
from dodona.core.version import __version__
from dodona.gateway.security.quotas import RequestQuotas
from dodona.gateway.security.token_cache import TokenCache
from dodona.gateway.security.token_monitor import TokenMonitor
from dodona.gateway.settings import GatewaySettings
from dodona.gateway.shutdown import Shutdown
from dodona.net.redactor import Redactor
from dodona.store.accounts.api_tokens import ApiTokens
from dodona.store.accounts.audit import AuditLog
from dodona.telemetry.metrics import Metrics

ReadinessCheck: TypeAlias = Callable[[], Awaitable[Mapping[str, Any]]]


class BudgetStatus(JsonDocument, kw_only=True):
    """A budget of the current day or month."""

    scope: str
    period: str
    unit: BudgetUnit
    used: Annotated[float, Meta(description="Usage, including reservations of calls in progress.")]
    ceiling: float


class BlockingCode(JsonDocument):
    """Code of an extension that has blocked the event loop."""

    name: Annotated[str, Meta(description="Its kind and name, such as `tool book_room`.")]
    where: Annotated[str, Meta(description="The file and line that ran.")]
    count: int
    last_at: Annotated[float, Meta(description="Unix time in seconds.")]
    hint: Annotated[str, Meta(description="What to do about it.")]


class GatewayStatus(JsonDocument, kw_only=True):
    """Runs, queues, streams, budgets and code that blocks."""

    version: str = __version__
    uptime_seconds: float | UnsetType = UNSET
    runs: Annotated[int, Meta(description="Active runs.")] | UnsetType = UNSET
    lanes_waiting: (
        Annotated[int, Meta(description="Conversations with a queued run.")] | UnsetType
    ) = UNSET
    streams: Annotated[int, Meta(description="Open event streams and WebSockets.")] | UnsetType = (
        UNSET
    )
    budgets: (
        Annotated[list[BudgetStatus], Meta(description="Budgets of the current day and month.")]
        | UnsetType
    ) = UNSET
    blocking: (
        Annotated[
            list[BlockingCode],
            Meta(description="Extensions that have blocked the event loop since the start."),
        ]
        | UnsetType
    ) = UNSET


StatusProvider: TypeAlias = Callable[[], Awaitable[GatewayStatus]]


async def empty_status() -> GatewayStatus:
    """Return only the version: the default where the process measures nothing."""
    return GatewayStatus()


@dataclass(slots=True, kw_only=True)
class GatewayState:
    """Everything that routes and middleware need.

    `check_readiness` returns the readiness details and raises if something does not work.
    `get_status` returns the current activity. Without `tokens`, every token is invalid and only
    the operator has access. The router inside `routing` can be replaced while the gateway runs.
    """

    api: AgentApi
    settings: GatewaySettings
    check_readiness: ReadinessCheck
    tokens: ApiTokens | None = None
    audit: AuditLog | None = None
    metrics: Metrics = field(default_factory=Metrics)
    get_status: StatusProvider = empty_status
    routing: LiveRouter = field(default_factory=LiveRouter)
    redactor: Redactor | None = None
    shutdown: Shutdown = field(default_factory=Shutdown)
    token_cache: TokenCache = field(init=False)
    token_monitor: TokenMonitor = field(init=False)
    quotas: RequestQuotas = field(init=False)

    def __post_init__(self) -> None:
        self.token_cache = TokenCache(self.tokens, self.settings.limits)
        self.token_monitor = TokenMonitor(self.tokens)
        self.quotas = RequestQuotas(self.settings.limits)
