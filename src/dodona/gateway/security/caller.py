"""The caller of a request and its scopes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from starlette.requests import HTTPConnection

from dodona.core.domain.agents import Agents
from dodona.core.domain.api_tokens import SCOPES, ApiToken
from dodona.core.domain.projects import LOCAL_USER
from dodona.core.domain.trust import NO_MARKS, Mark, Marks
from dodona.core.errors import AccessDenied, Unauthorized
from dodona.core.messages import Origin

CALLER_KEY: Final = "dodona.caller"  # its key in the ASGI scope


@dataclass(frozen=True, slots=True)
class Caller:
    """`token` is None for the operator: a local request without a token, with all scopes."""

    user_id: str
    scopes: frozenset[str]
    token: ApiToken | None = None

    @property
    def token_id(self) -> int | None:
        return None if self.token is None else self.token.id

    def allowed_agents(self, agents: Agents) -> list[str]:
        """Return the ids of the agents that the caller may use."""
        token = self.token
        return [id_ for id_ in agents.ids() if token is None or token.limits.allows_agent(id_)]

    @property
    def relays_others(self) -> bool:
        """Whether this is a channel adapter: it speaks for others, who may be anyone."""
        return self.token is not None and self.token.relays_others

    @property
    def marks(self) -> Marks:
        """The marks of what the caller writes: of others, if an adapter sends it."""
        return frozenset({Mark.of(Origin.PEER, "a channel")}) if self.relays_others else NO_MARKS

    def require_person(self) -> None:
        """Raise unless the user may be the one who asks: a decision is not an adapter's."""
        if self.relays_others and not self.has_scope("admin"):
            raise AccessDenied(
                "a token with scope channel cannot decide for its user.",
                hint="Use a token with scope chat and without channel.",
            )

    def has_scope(self, scope: str) -> bool:
        """Whether the caller has a scope. `chat` includes `read`."""
        return scope in self.scopes or (scope == "read" and "chat" in self.scopes)

    def require_scope(self, scope: str) -> None:
        if not self.has_scope(scope):
            raise AccessDenied(
                f"this needs a token with scope {scope}.",
                hint=f"dodona token create --user {self.user_id} --scope {scope}",
            )


LOCAL_OPERATOR: Final = Caller(LOCAL_USER, frozenset(SCOPES))


def caller_of(connection: HTTPConnection) -> Caller:
    """Return the caller that the auth middleware identified."""
    caller = connection.scope.get(CALLER_KEY)
    if caller is None:
        raise Unauthorized("a token is required.")
    return caller
