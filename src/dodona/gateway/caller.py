"""Who asks, and what they may do. Tokens are read here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from starlette.requests import HTTPConnection

from dodona.core.errors import AccessDenied
from dodona.core.users import LOCAL_USER

SCOPES: Final = {
    "read": "look at one's own things",
    "chat": "ask, and change one's own things; includes read",
    "channel": "speak for other peers and accounts, as the adapter of a chat channel does",
    "admin": "see all users' usage, set budgets, read the audit log and the metrics",
}


@dataclass(frozen=True, slots=True)
class Caller:
    """`token_id` is None on loopback without a token: that is the operator, who may do all."""

    user_id: str
    scopes: frozenset[str]
    token_id: int | None = None

    def may(self, scope: str) -> bool:
        return scope in self.scopes or (scope == "read" and "chat" in self.scopes)

    def need(self, scope: str) -> None:
        if not self.may(scope):
            raise AccessDenied(
                f"this needs a token with scope {scope}.",
                hint=f"dodona token create --user {self.user_id} --scope {scope}",
            )


OPERATOR: Final = Caller(LOCAL_USER, frozenset(SCOPES))


def caller_of(_connection: HTTPConnection) -> Caller:
    return OPERATOR
