"""A short-lived cache of verified tokens, and cooldowns after too many invalid ones."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from hashlib import sha256
from time import time
from typing import Final

from dodona.core.domain.api_tokens import TOKEN_PATTERN, ApiToken
from dodona.core.errors import StoreError, Unauthorized
from dodona.core.ttl_cache import TtlCache
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
        self._failure_buckets = TokenBuckets(limits.auth_failures)
        self._cooldowns: TtlCache[str, None] = TtlCache(limits.cooldown, max_size=CACHE_SIZE)
        self._cached: TtlCache[str, ApiToken] = TtlCache(CACHE_SECONDS, max_size=CACHE_SIZE)
        self._recorded: TtlCache[int, None] = TtlCache(USE_RECORD_INTERVAL, max_size=CACHE_SIZE)
        self._recording_tasks: set[asyncio.Task[None]] = set()

    async def verify(self, text: str, address: str) -> ApiToken:
        """Return a valid token. Raises Unauthorized, or TooManyRequests during a cooldown."""
        digest = sha256(text.encode("latin-1", "replace")).hexdigest()
        if digest not in self._cached:
            self._check_cooldown(client_key(address))
        token = self._cached.get(digest) or await self._find(text, digest)
        if token is None or not token.is_active(time()):
            self._cached.discard(digest)
            self._record_failure(client_key(address))
            raise Unauthorized(rejection_reason(token), hint=TOKEN_HINT)
        self._schedule_use_record(token)
        return token

    async def _find(self, text: str, digest: str) -> ApiToken | None:
        if self._tokens is None or not TOKEN_PATTERN.fullmatch(text):
            return None
        token = await self._tokens.find(digest)
        if token is not None:
            self._cached.put(digest, token)
        return token

    def _check_cooldown(self, client: str) -> None:
        if remaining := self._cooldowns.seconds_left(client):
            raise TooManyRequests(
                "too many invalid tokens from this address.",
                retry_after=remaining,
                hint="Check the token, and retry later.",
            )

    def _record_failure(self, client: str) -> None:
        self._failure_buckets.acquire(client)
        if self._failure_buckets.wait_seconds(client):
            self._cooldowns.put(client, None)

    def _schedule_use_record(self, token: ApiToken) -> None:
        """Store the time of use in the background, at most once per interval."""
        if self._tokens is None or self._recorded.seconds_left(token.id):
            return
        self._recorded.put(token.id, None)
        task = asyncio.create_task(_record_use(self._tokens, token.id))
        self._recording_tasks.add(task)
        task.add_done_callback(self._recording_tasks.discard)


async def _record_use(tokens: ApiTokens, token_id: int) -> None:
    with suppress(StoreError):  # the time of use does not affect access
        await tokens.record_use((token_id,), time())


def rejection_reason(token: ApiToken | None) -> str:
    """Return why a token gives no access; None is a token that does not exist."""
    if token is None:
        return "this token is unknown."
    return "this token was revoked." if token.revoked_at is not None else "this token has expired."
