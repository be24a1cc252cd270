"""API tokens: which user a client acts as, with which scopes and limits."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from dodona.core.errors import AccessDenied

SCOPES: Final = {
    "read": "read your own data",
    "chat": "ask questions and change your own data; includes read",
    "channel": "act for other peers and accounts, as a chat channel adapter does",
    "admin": "see the usage of all users, set budgets, read the audit log and the metrics",
}

TOKEN_PREFIX: Final = "dod_"
# The complete token: 256 random bits in URL-safe base64.
TOKEN_PATTERN: Final = re.compile(TOKEN_PREFIX + "[A-Za-z0-9_-]{43}")


class BudgetPeriod(Enum):
    """How long the budget of a token lasts, in UTC. TOTAL never resets."""

    DAY = "day"
    MONTH = "month"
    TOTAL = "total"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLimits:
    """What requests with a token may spend and use; None is unlimited.

    `models` are names of models, or `provider/model`. The limits of a token never change.
    """

    budget_tokens: int | None = None
    budget_nanos: int | None = None  # billionths of a dollar
    period: BudgetPeriod = BudgetPeriod.TOTAL
    agents: frozenset[str] | None = None
    models: frozenset[str] | None = None

    @property
    def has_budget(self) -> bool:
        return self.budget_tokens is not None or self.budget_nanos is not None

    def allows_agent(self, agent_id: str) -> bool:
        return self.agents is None or agent_id in self.agents

    def allows_model(self, provider: str, name: str) -> bool:
        return self.models is None or not self.models.isdisjoint((name, f"{provider}/{name}"))


UNLIMITED: Final = TokenLimits()


@dataclass(frozen=True, slots=True)
class ApiToken:
    """The record of a token; its text is known only to its holder."""

    id: int
    user_id: str
    label: str
    scopes: frozenset[str]
    created_at: float
    expires_at: float | None = None
    last_used_at: float | None = None
    revoked_at: float | None = None
    limits: TokenLimits = UNLIMITED

    def is_active(self, now: float) -> bool:
        """Whether the token is neither revoked nor expired."""
        is_expired = self.expires_at is not None and self.expires_at <= now
        return self.revoked_at is None and not is_expired

    @property
    def relays_others(self) -> bool:
        """Whether its holder is a channel adapter: all that it sends was written by others."""
        return "channel" in self.scopes

    def check_agent(self, agent_id: str) -> None:
        """Raise AccessDenied unless requests with the token may use an agent."""
        if not self.limits.allows_agent(agent_id):
            raise AccessDenied(
                f"this token may not use the agent {agent_id!r:.80}.",
                hint=f"Its agents: {', '.join(sorted(self.limits.agents or ()))}.",
            )

    def check_model(self, provider: str, name: str) -> None:
        """Raise AccessDenied unless runs of the token may call a model."""
        if not self.limits.allows_model(provider, name):
            raise AccessDenied(
                f"this token may not use the model {f'{provider}/{name}'!r:.80}.",
                hint=f"Its models: {', '.join(sorted(self.limits.models or ()))}.",
            )
