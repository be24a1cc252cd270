"""Tokens that were seen a moment ago, and addresses that have tried too many wrong ones."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from hashlib import sha256
from time import monotonic, time
from typing import Final

from dodona.core.domain.api_tokens import TOKEN, ApiToken, Tokens
from dodona.core.errors import StoreError, Unauthorized
from dodona.gateway.errors import TooManyRequests
from dodona.gateway.security.client_address import client_key
from dodona.gateway.security.rate_limit import TokenBuckets
from dodona.gateway.settings import Limits

FRESH: Final = 0.5  # seconds for which a token is not looked up again: so soon a revocation counts
MOST_KNOWN: Final = 4_096
NOTED: Final = 60.0  # seconds between two notes of when a token was last used
HINT: Final = "Send it in the header Authorization, as Bearer TOKEN; dodona token create makes one."


class TokenCache:
    """Checks tokens. `tokens` is None where there are none: then every one is wrong.

    An address with too many wrong ones is answered without a look at the store for a while; a token
    that has been right before goes on to be looked at, whoever shares its address.
    """

    def __init__(self, tokens: Tokens | None, limits: Limits) -> None:
        self._tokens = tokens
        self._cooldown = limits.cooldown
        self._tries = TokenBuckets(limits.auth_failures)
        self._cooling: dict[str, float] = {}  # places, until when
        self._known: dict[str, tuple[ApiToken, float]] = {}  # by digest, until when it is fresh
        self._noted: dict[int, float] = {}  # when tokens were last noted to be used
        self._noting: set[asyncio.Task[None]] = set()

    async def check(self, text: str, address: str) -> ApiToken:
        """The token with this text; Unauthorized, or TooMany after too many of those."""
        digest = sha256(text.encode("latin-1", "replace")).hexdigest()
        known = self._known.get(digest)
        if known is None:
            self._check_cooldown(client_key(address))
        if known is not None and monotonic() < known[1]:
            token = known[0]
        else:
            token = await self._find(text, digest)
        if token is None or not token.is_active(time()):
            self._known.pop(digest, None)
            self._failed(client_key(address))
            raise Unauthorized(_why(token), hint=HINT)
        self._note(token)
        return token

    async def _find(self, text: str, digest: str) -> ApiToken | None:
        if self._tokens is None or not TOKEN.fullmatch(text):
            return None
        token = await self._tokens.find(digest)
        if token is not None:
            self._known.pop(digest, None)
            if len(self._known) >= MOST_KNOWN:
                del self._known[next(iter(self._known))]
            self._known[digest] = (token, monotonic() + FRESH)
        return token

    def _check_cooldown(self, place: str) -> None:
        left = self._cooling.get(place, 0.0) - monotonic()
        if left > 0:
            raise TooManyRequests(
                "too many wrong tokens came from this address.",
                retry_after=left,
                hint="Wait, and look at the token.",
            )
        self._cooling.pop(place, None)

    def _failed(self, place: str) -> None:
        self._tries.take(place)
        if not self._tries.wait(place):
            return
        if len(self._cooling) >= MOST_KNOWN:
            del self._cooling[next(iter(self._cooling))]
        self._cooling[place] = monotonic() + self._cooldown

    def _note(self, token: ApiToken) -> None:
        """Now and then, behind the request."""
        now = monotonic()
        if self._tokens is None or now - self._noted.get(token.id, -NOTED) < NOTED:
            return
        if len(self._noted) >= MOST_KNOWN:
            self._noted.clear()
        self._noted[token.id] = now
        task = asyncio.create_task(_record_use(self._tokens, token.id))
        self._noting.add(task)
        task.add_done_callback(self._noting.discard)


async def _record_use(tokens: Tokens, token_id: int) -> None:
    with suppress(StoreError):  # nobody is let in or kept out by it
        await tokens.used((token_id,), time())


def _why(token: ApiToken | None) -> str:
    if token is None:
        return "this token is not known here."
    return "this token was revoked." if token.revoked_at is not None else "this token has expired."
