"""What stands behind the routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from dodona.agent.agency import Agency
from dodona.core.audit import Audit, AuditEntry
from dodona.gateway.closing import Closing
from dodona.gateway.crowd import Crowd
from dodona.gateway.known import KnownTokens
from dodona.gateway.rules import Rules
from dodona.net.redactor import Redactor

Ready: TypeAlias = Callable[[], Awaitable[Mapping[str, Any]]]


class ReadableAudit(Audit, Protocol):
    async def page(
        self, *, since: float = 0.0, kind: str = "", before: int | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        """Entries, the newest first."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """`ready` tells what works; it raises when something does not."""

    agency: Agency
    rules: Rules
    ready: Ready
    document: Mapping[str, Any]  # OpenAPI
    known: KnownTokens
    crowd: Crowd
    audit: ReadableAudit | None = None
    redactor: Redactor | None = None
    closing: Closing = field(default_factory=Closing)
