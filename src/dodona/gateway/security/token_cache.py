"""A short-lived cache of verified tokens, and cooldowns after too many invalid ones."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from hashlib import sha256
from time import monotonic, time
from typing import Final

from dodona.core.domain.api_tokens import TOKEN_PATTERN, ApiToken
from dodona.core.errors import StoreError, Unauthorized
from dodona.gateway.errors import TooManyRequests
from dodona.gateway.security.client_address import client_key
from dodona.gateway.security.rate_limit import TokenBuckets
from dodona.gateway.settings import RequestLimits
from dodona.store.accounts.api_tokens import ApiTokens

CACHE_SECONDS: Final = 0.5  # how long a verified token is cached; delays a revocation as long
CACHE_SIZE: Final = 4_096
USE_RECORD_INTERVAL: Final = 60.0  # seconds between two updates of a token's last use
TOKEN_HINT: Final = (
    "Send the header Authorization: Bearer TOKEN. To create a token: dodona token create"
)


class TokenCache:
    """Verifies tokens. Without `tokens`, every token is invalid.

    An address that sends too many invalid tokens is rejected without a store lookup for a while.
    A token that was valid before is still checked, even if it comes from such an address.
    """

    def __init__(self, tokens: ApiTokens | None, limits: RequestLimits) -> None:
        self._tokens = tokens
        self._cooldown_seconds = limits.cooldown
        self._failure_buckets = TokenBuckets(limits.auth_failures)
        self._cooldown_until: dict[str, float] = {}  # by client, until when
        self._cached: dict[str, tuple[ApiToken, float]] = {}  # by digest, with the expiry
        self._recorded_at: dict[int, float] = {}  # by token id, when the last use was stored
        self._recording_tasks: set[asyncio.Task[None]] = set()

    async def verify(self, text: str, address: str) -> ApiToken:
        """Return a valid token. Raises Unauthorized, or TooManyRequests during a cooldown."""
        digest = sha256(text.encode("latin-1", "replace")).hexdigest()
        cached = self._cached.get(digest)
        if cached is None:
            self._check_cooldown(client_key(address))
        if cached is not None and monotonic() < cached[1]:
            token = cached[0]
        else:
            token = await self._find(text, digest)
        if token is None or not token.is_active(time()):
            self._cached.pop(digest, None)
            self._record_failure(client_key(address))
            raise Unauthorized(_rejection_reason(token), hint=TOKEN_HINT)
        self._schedule_use_record(token)
        return token

    async def _find(self, text: str, digest: str) -> ApiToken | None:
        if self._tokens is None or not TOKEN_PATTERN.fullmatch(text):
            return None
        token = await self._tokens.find(digest)
        if token is not None:
            self._cached.pop(digest, None)
            if len(self._cached) >= CACHE_SIZE:
                del self._cached[next(iter(self._cached))]
            self._cached[digest] = (token, monotonic() + CACHE_SECONDS)
        return token

    def _check_cooldown(self, client: str) -> None:
        remaining = self._cooldown_until.get(client, 0.0) - monotonic()
        if remaining > 0:
            raise TooManyRequests(
                "too many invalid tokens from this address.",
                retry_after=remaining,
                hint="Check the token, and retry later.",
            )
        self._cooldown_until.pop(client, None)

    def _record_failure(self, client: str) -> None:
        self._failure_buckets.acquire(client)
        if not self._failure_buckets.wait_seconds(client):
            return
        if len(self._cooldown_until) >= CACHE_SIZE:
            del self._cooldown_until[next(iter(self._cooldown_until))]
        self._cooldown_until[client] = monotonic() + self._cooldown_seconds

    def _schedule_use_record(self, token: ApiToken) -> None:
        """Store the time of use in the background, at most once per interval."""
        now = monotonic()
        if (
            self._tokens is None
            or now - self._recorded_at.get(token.id, -USE_RECORD_INTERVAL) < USE_RECORD_INTERVAL
        ):
            return
        if len(self._recorded_at) >= CACHE_SIZE:
            self._recorded_at.clear()
        self._recorded_at[token.id] = now
        task = asyncio.create_task(_record_use(self._tokens, token.id))
        self._recording_tasks.add(task)
        task.add_done_callback(self._recording_tasks.discard)


async def _record_use(tokens: ApiTokens, token_id: int) -> None:
    with suppress(StoreError):  # the time of use does not affect access
        await tokens.record_use((token_id,), time())


def _rejection_reason(token: ApiToken | None) -> str:
    if token is None:
        return "this token is unknown."
    return "this token was revoked." if token.revoked_at is not None else "this token has expired."
