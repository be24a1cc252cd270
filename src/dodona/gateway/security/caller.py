"""The caller of a request and its scopes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from starlette.requests import HTTPConnection

from dodona.core.domain.api_tokens import SCOPES
from dodona.core.domain.projects import LOCAL_USER
from dodona.core.errors import AccessDenied, Unauthorized

CALLER_KEY: Final = "dodona.caller"  # its key in the ASGI scope


@dataclass(frozen=True, slots=True)
class Caller:
    """`token_id` is None for the operator: a local request without a token, with all scopes."""

    user_id: str
    scopes: frozenset[str]
    token_id: int | None = None

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
