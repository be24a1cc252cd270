"""Authentication. A token is always checked; without one, only the operator has access.

A request is the operator's if it comes from this machine, names this machine as its host, did not
pass a proxy, and the gateway is not reachable from the network. A local proxy would turn every
remote client into the operator, so any request that looks proxied needs a token.
"""

from __future__ import annotations

import re
from typing import Final

from starlette.requests import HTTPConnection
from starlette.types import Scope

from dodona.core.domain.api_tokens import TOKEN_PREFIX
from dodona.core.domain.audit import AuditEntry
from dodona.core.errors import DodonaError, Unauthorized
from dodona.gateway.errors import TooManyRequests
from dodona.gateway.security.caller import LOCAL_OPERATOR, Caller
from dodona.gateway.security.client_address import address_of, is_loopback, is_proxied
from dodona.gateway.security.hosts import header_values, own_hosts, server_address
from dodona.gateway.security.token_cache import TOKEN_HINT
from dodona.gateway.settings import GatewaySettings
from dodona.gateway.state import GatewayState

OPENAI_PREFIX: Final = "/v1/"
_AUTHORIZATION: Final = b"authorization"
_KEY_PATTERN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # a bearer token, RFC 6750


async def authenticate(
    state: GatewayState, connection: HTTPConnection, token: str | None
) -> Caller:
    """Return the caller of a request. `token` is the token it carries, None without one.

    Raises Unauthorized for an invalid token, TooManyRequests if the token exceeded its rate limit
    or its address sent too many invalid ones. Both are written to the audit log. A WebSocket may
    send its token in the first message: call this again then.
    """
    try:
        return await _identify(state, connection.scope, token)
    except (Unauthorized, TooManyRequests) as error:
        audit_rejection(state, connection.scope, error, None)
        raise


async def _identify(state: GatewayState, scope: Scope, token: str | None) -> Caller:
    if token is None:
        if reason := token_required_reason(scope, state.settings):
            raise Unauthorized(reason, hint=TOKEN_HINT)
        return LOCAL_OPERATOR
    api_token = await state.token_cache.verify(token, address_of(scope, state.settings.proxies))
    caller = Caller(api_token.user_id, api_token.scopes, api_token)
    state.quotas.acquire_for_token(caller)
    return caller


async def check_run_quota(state: GatewayState, caller: Caller) -> None:
    """Raise TooManyRequests if a user has too many open runs. The operator has no limit."""
    limit = state.quotas.limits.user_runs
    if caller.token_id is None or await state.api.runs.open_count(caller.user_id) < limit:
        return
    raise TooManyRequests(
        f"this user already has {limit} runs that are queued or running.",
        hint="Wait for some of them to end, or cancel them.",
    )


def bearer_token(scope: Scope) -> str | None:
    """Return the token in the Authorization header; None without a header, "" if malformed.

    OpenAI's clients always send a key: under /v1, a well-formed one without the prefix of our
    tokens is ignored.
    """
    values = [value.decode("latin-1") for name, value in scope["headers"] if name == _AUTHORIZATION]
    if not values:
        return None
    scheme, _, text = values[0].strip(" \t").partition(" ")
    token = text.strip(" \t")
    if len(values) > 1 or scheme.lower() != "bearer" or not _KEY_PATTERN.fullmatch(token):
        return ""
    is_foreign = not token.lower().startswith(TOKEN_PREFIX)
    return None if is_foreign and scope["path"].startswith(OPENAI_PREFIX) else token


def token_required_reason(scope: Scope, settings: GatewaySettings) -> str:
    """Return why a request without a token may not be the operator's; empty if it is."""
    if settings.needs_token or not is_loopback((scope.get("client") or ("", 0))[0]):
        return "a token is required."
    # Proxies use HTTP/1.0 unless configured otherwise; browsers and API clients do not.
    if is_proxied(scope["headers"]) or scope.get("http_version") == "1.0":
        return "requests through a proxy need a token."
    if not own_hosts(*server_address(scope)).issuperset(header_values(scope["headers"], b"host")):
        return "requests to this host name need a token."
    return ""


def audit_rejection(
    state: GatewayState, scope: Scope, error: DodonaError, caller: Caller | None
) -> None:
    """Record a rejected request in the audit log: the caller, the address and the reason."""
    if state.audit is None:
        return
    match error:
        case Unauthorized():
            kind = "auth"
        case TooManyRequests():
            kind = "limit"
        case _:
            kind = "denied"
    description = f"{scope.get('method', 'upgrade')} {scope['path'][:200]}: {error.message}"
    state.audit.record(
        AuditEntry(
            kind=kind,
            what=description,
            user_id=caller.user_id if caller is not None else "",
            token_id=caller.token_id if caller is not None else None,
            address=address_of(scope, state.settings.proxies),
        )
    )
