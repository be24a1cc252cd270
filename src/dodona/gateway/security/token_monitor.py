"""Ends open connections whose token was revoked or has expired.

A request checks its token once. A WebSocket or an event stream stays open, so its token is checked
again while it is: one task reads the tokens of all open connections in one go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from time import time
from typing import Final, Self

from dodona.core.domain.api_tokens import ApiToken
from dodona.core.errors import StoreError, Unauthorized
from dodona.gateway.security.token_cache import TOKEN_HINT, rejection_reason
from dodona.store.accounts.api_tokens import ApiTokens

CHECK_INTERVAL: Final = 0.5  # seconds between two checks of all tokens


class TokenMonitor:
    """Checks the tokens of open connections. Without `tokens`, there are none to check."""

    def __init__(self, tokens: ApiTokens | None) -> None:
        self._tokens = tokens
        self._watches: dict[int, set[TokenWatch]] = {}
        self._records: dict[int, ApiToken] = {}  # of the watched tokens, as of the last check
        self._task: asyncio.Task[None] | None = None

    def watch(self, token_id: int | None) -> TokenWatch:
        """Return a watch for one connection. The operator, without a token, keeps access."""
        return TokenWatch(self, token_id)

    def add(self, watch: TokenWatch) -> None:
        """Check the token of this watch from now on."""
        if watch.token_id is None or self._tokens is None:
            return
        self._watches.setdefault(watch.token_id, set()).add(watch)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(self._tokens))

    def remove(self, watch: TokenWatch) -> None:
        """Stop checking for this watch. After the last one, no task remains."""
        token_id = watch.token_id
        if token_id is None or token_id not in self._watches:
            return
        self._watches[token_id].discard(watch)
        if not self._watches[token_id]:
            del self._watches[token_id]
            self._records.pop(token_id, None)
        if not self._watches and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self, tokens: ApiTokens) -> None:
        check: asyncio.Task[None] | None = None
        try:
            while True:
                await asyncio.sleep(CHECK_INTERVAL)
                # Expiry needs no store, which may be slow or locked at the moment.
                self._end_inactive(list(self._records))
                if check is None or check.done():
                    check = asyncio.create_task(self._check(tokens))
        finally:
            if check is not None:
                check.cancel()

    async def _check(self, tokens: ApiTokens) -> None:
        token_ids = list(self._watches)
        try:
            records = await tokens.find_all(token_ids)
        except StoreError:
            return  # checked again after the interval; frames and new requests fail meanwhile
        self._records = {id_: record for id_, record in records.items() if id_ in self._watches}
        self._end_inactive(token_ids)

    def _end_inactive(self, token_ids: Iterable[int]) -> None:
        now = time()
        for token_id in token_ids:
            record = self._records.get(token_id)
            if record is None or not record.is_active(now):
                for watch in [*self._watches.get(token_id, ())]:
                    watch.end(Unauthorized(rejection_reason(record), hint=TOKEN_HINT))


class TokenWatch:
    """The token of one connection, checked inside a `with` block."""

    __slots__ = ("_ended", "_monitor", "token_id")

    def __init__(self, monitor: TokenMonitor, token_id: int | None) -> None:
        self.token_id = token_id
        self._monitor = monitor
        self._ended: asyncio.Future[Unauthorized] = asyncio.get_running_loop().create_future()

    def __enter__(self) -> Self:
        self._monitor.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._monitor.remove(self)

    @property
    def error(self) -> Unauthorized | None:
        """Why the connection lost its access; None while it has access."""
        return self._ended.result() if self._ended.done() else None

    async def wait_ended(self) -> None:
        """Wait until the token is revoked or expires."""
        await asyncio.shield(self._ended)

    def on_end(self, callback: Callable[[Unauthorized], object]) -> None:
        """Call back when the token is revoked or expires."""
        self._ended.add_done_callback(lambda ended: callback(ended.result()))

    def end(self, error: Unauthorized) -> None:
        """Mark the token as ended. Only the monitor calls this."""
        if not self._ended.done():
            self._ended.set_result(error)
