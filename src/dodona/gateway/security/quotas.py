"""Counts what callers do: how often they ask, and how much of it at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from dodona.gateway.errors import Overloaded, TooManyRequests
from dodona.gateway.security.caller import Caller
from dodona.gateway.security.rate_limit import TokenBuckets
from dodona.gateway.settings import Limits

_MOMENT = 1.0  # seconds after which something may have ended


class RequestQuotas:
    """All who are being served."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._of_tokens = TokenBuckets(limits.token_rate)
        self._of_places = TokenBuckets(limits.address_rate)
        self._users: Counter[str] = Counter()  # requests under way
        self._all = 0

    def acquire_for_client(self, place: str) -> None:
        """Take a turn for an address; TooMany when it has none left."""
        if wait := self._of_places.take(place):
            raise TooManyRequests("too many requests come from this address.", retry_after=wait)

    def acquire_for_token(self, caller: Caller) -> None:
        """Take a turn for a token; the operator needs none."""
        if caller.token_id is not None and (wait := self._of_tokens.take(caller.token_id)):
            raise TooManyRequests("too many requests come with this token.", retry_after=wait)

    def check(self, caller: Caller | None) -> None:
        """Refuse another request while too many are answered; None is nobody in particular."""
        if self._all >= self.limits.in_flight:
            raise Overloaded("too much is being asked at once.", retry_after=_MOMENT)
        if self._users[_name(caller)] >= self.limits.user_in_flight:
            raise TooManyRequests(
                f"{self.limits.user_in_flight} requests of this user are under way already.",
                retry_after=_MOMENT,
                hint="Let some of them end first; streams count too.",
            )

    @contextmanager
    def in_flight(self, caller: Caller | None) -> Generator[None]:
        """While a request is answered."""
        name = _name(caller)
        self._all += 1
        if name:
            self._users[name] += 1
        try:
            yield
        finally:
            self._all -= 1
            if name:
                self._users[name] -= 1
                if not self._users[name]:
                    del self._users[name]


def _name(caller: Caller | None) -> str:
    """Who is counted: not the operator."""
    return caller.user_id if caller is not None and caller.token_id is not None else ""
