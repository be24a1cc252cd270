"""Counts what callers do: how often they ask, and how much of it at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from dodona.gateway.errors import Overloaded, TooManyRequests
from dodona.gateway.security.caller import Caller
from dodona.gateway.security.rate_limit import TokenBuckets
from dodona.gateway.settings import RequestLimits

_RETRY_SECONDS = 1.0  # seconds after which something may have ended


class RequestQuotas:
    """All who are being served."""

    def __init__(self, limits: RequestLimits) -> None:
        self.limits = limits
        self._token_buckets = TokenBuckets(limits.token_rate)
        self._client_buckets = TokenBuckets(limits.address_rate)
        self._in_flight_by_user: Counter[str] = Counter()  # requests under way
        self._in_flight_total = 0

    def acquire_for_client(self, client: str) -> None:
        """Take a turn for an address; TooMany when it has none left."""
        if wait := self._client_buckets.acquire(client):
            raise TooManyRequests("too many requests come from this address.", retry_after=wait)

    def acquire_for_token(self, caller: Caller) -> None:
        """Take a turn for a token; the operator needs none."""
        if caller.token_id is not None and (wait := self._token_buckets.acquire(caller.token_id)):
            raise TooManyRequests("too many requests come with this token.", retry_after=wait)

    def check_in_flight(self, caller: Caller | None) -> None:
        """Refuse another request while too many are answered; None is nobody in particular."""
        if self._in_flight_total >= self.limits.in_flight:
            raise Overloaded("too much is being asked at once.", retry_after=_RETRY_SECONDS)
        if self._in_flight_by_user[_quota_key(caller)] >= self.limits.user_in_flight:
            raise TooManyRequests(
                f"{self.limits.user_in_flight} requests of this user are under way already.",
                retry_after=_RETRY_SECONDS,
                hint="Let some of them end first; streams count too.",
            )

    @contextmanager
    def track_in_flight(self, caller: Caller | None) -> Generator[None]:
        """While a request is answered."""
        name = _quota_key(caller)
        self._in_flight_total += 1
        if name:
            self._in_flight_by_user[name] += 1
        try:
            yield
        finally:
            self._in_flight_total -= 1
            if name:
                self._in_flight_by_user[name] -= 1
                if not self._in_flight_by_user[name]:
                    del self._in_flight_by_user[name]


def _quota_key(caller: Caller | None) -> str:
    """Who is counted: not the operator."""
    return caller.user_id if caller is not None and caller.token_id is not None else ""
