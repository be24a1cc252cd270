"""Request quotas: rate limits, and limits on concurrent requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from dodona.gateway.errors import Overloaded, TooManyRequests
from dodona.gateway.security.caller import Caller
from dodona.gateway.security.rate_limit import TokenBuckets
from dodona.gateway.settings import RequestLimits

_RETRY_AFTER_SECONDS = 1.0  # seconds after which a request may have ended


class RequestQuotas:
    """Rate limits per token and address, and counts of requests in flight."""

    def __init__(self, limits: RequestLimits) -> None:
        self.limits = limits
        self._rate_by_api_token = TokenBuckets(limits.token_rate)
        self._client_buckets = TokenBuckets(limits.address_rate)
        self._in_flight_by_user: Counter[str] = Counter()
        self._in_flight_total = 0

    def acquire_for_client(self, client: str) -> None:
        """Count a request of an address. Raises TooManyRequests above its rate limit."""
        if wait := self._client_buckets.acquire(client):
            raise TooManyRequests("too many requests from this address.", retry_after=wait)

    def acquire_for_token(self, caller: Caller) -> None:
        """Count a request of a token. The operator has no rate limit."""
        if caller.token_id is not None and (
            wait := self._rate_by_api_token.acquire(caller.token_id)
        ):
            raise TooManyRequests("too many requests with this token.", retry_after=wait)

    def check_in_flight(self, caller: Caller | None) -> None:
        """Raise if too many requests are in flight, in total or for this user."""
        if self._in_flight_total >= self.limits.in_flight:
            raise Overloaded("too many requests at once.", retry_after=_RETRY_AFTER_SECONDS)
        if self._in_flight_by_user[_counted_user_id(caller)] >= self.limits.user_in_flight:
            raise TooManyRequests(
                f"this user already has {self.limits.user_in_flight} requests in flight.",
                retry_after=_RETRY_AFTER_SECONDS,
                hint="Wait for some of them to end; streams count too.",
            )

    @contextmanager
    def track_in_flight(self, caller: Caller | None) -> Generator[None]:
        """Count a request as in flight inside the block."""
        user_id = _counted_user_id(caller)
        self._in_flight_total += 1
        if user_id:
            self._in_flight_by_user[user_id] += 1
        try:
            yield
        finally:
            self._in_flight_total -= 1
            if user_id:
                self._in_flight_by_user[user_id] -= 1
                if not self._in_flight_by_user[user_id]:
                    del self._in_flight_by_user[user_id]


def _counted_user_id(caller: Caller | None) -> str:
    """Return the user to count for; empty for the operator and for public paths."""
    return caller.user_id if caller is not None and caller.token_id is not None else ""
