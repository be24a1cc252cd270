"""Finds out who asks. A token that is given always counts; without one, only the operator may ask.

The operator is whoever comes from this machine, by its own name and not through a proxy, to a
gateway that nobody else can reach. A proxy on this machine would make everybody the operator; so
what looks as if it came through one needs a token.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import HTTPConnection
from starlette.types import Scope

from dodona.core.domain.api_tokens import TOKEN_PREFIX
from dodona.core.domain.audit import AuditEntry
from dodona.core.errors import DodonaError, Unauthorized
from dodona.gateway.errors import TooManyRequests
from dodona.gateway.security.caller import OPERATOR, Caller
from dodona.gateway.security.client_address import address_of, is_loopback, is_proxied
from dodona.gateway.security.hosts import header_values, own_hosts, server_address
from dodona.gateway.security.token_cache import TOKEN_HINT
from dodona.gateway.settings import GatewaySettings
from dodona.gateway.state import GatewayState

OPENAI_PREFIX: Final = "/v1/"
_AUTHORIZATION: Final = b"authorization"


async def authenticate(
    state: GatewayState, connection: HTTPConnection, token: str | None
) -> Caller:
    """Whose request it is; `token` is what came with it, None when nothing did.

    Raises Unauthorized, or TooMany when the token has been used too often, or too many wrong ones
    came from the same address; either is on record then. A WebSocket may bring its token with the
    first message: ask here again then.
    """
    try:
        return await _identify(state, connection.scope, token)
    except (Unauthorized, TooManyRequests) as error:
        audit_rejection(state, connection.scope, error, None)
        raise


async def _identify(state: GatewayState, scope: Scope, token: str | None) -> Caller:
    if token is None:
        if why := token_required_reason(scope, state.settings):
            raise Unauthorized(why, hint=TOKEN_HINT)
        return OPERATOR
    found = await state.token_cache.verify(token, address_of(scope, state.settings.proxies))
    caller = Caller(found.user_id, found.scopes, found.id)
    state.quotas.acquire_for_token(caller)
    return caller


async def check_run_quota(state: GatewayState, caller: Caller) -> None:
    """Refuse another run of a user who has enough of them; the operator may have any number."""
    most = state.quotas.limits.user_runs
    if caller.token_id is None or await state.api.runs.open_count(caller.user_id) < most:
        return
    raise TooManyRequests(
        f"{most} runs of this user wait or go on already.",
        hint="Let some of them end, or cancel them.",
    )


def bearer_token(scope: Scope) -> str | None:
    """What stands in the header; something that cannot be a token is a wrong one, not none.

    OpenAI's clients always send a key: where they ask, one that is not of our making is none.
    """
    given = [value.decode("latin-1") for name, value in scope["headers"] if name == _AUTHORIZATION]
    if not given:
        return None
    scheme, _, text = given[0].strip().partition(" ")
    token = text.strip() if len(given) == 1 and scheme.lower() == "bearer" else ""
    is_foreign = (
        scope["path"].startswith(OPENAI_PREFIX) and token and not token.startswith(TOKEN_PREFIX)
    )
    return None if is_foreign else token


def token_required_reason(scope: Scope, settings: GatewaySettings) -> str:
    """Why whoever sent this without a token may be another than the operator; empty if not so."""
    if settings.needs_token or not is_loopback((scope.get("client") or ("", 0))[0]):
        return "a token is needed here."
    # Proxies speak HTTP/1.0 unless they are told otherwise; browsers and clients do not.
    if is_proxied(scope["headers"]) or scope.get("http_version") == "1.0":
        return "what comes through a proxy needs a token."
    if not own_hosts(*server_address(scope)).issuperset(header_values(scope["headers"], b"host")):
        return "whoever comes by this name needs a token."
    return ""


def audit_rejection(
    state: GatewayState, scope: Scope, error: DodonaError, caller: Caller | None
) -> None:
    """Into the audit log: who was turned away, from where, and why."""
    if state.services.audit is None:
        return
    match error:
        case Unauthorized():
            kind = "auth"
        case TooManyRequests():
            kind = "limit"
        case _:
            kind = "denied"
    what = f"{scope.get('method', 'upgrade')} {scope['path'][:200]}: {error.message}"
    state.services.audit.record(
        AuditEntry(
            kind=kind,
            what=what,
            user_id=caller.user_id if caller is not None else "",
            token_id=caller.token_id if caller is not None else None,
            address=address_of(scope, state.settings.proxies),
        )
    )
