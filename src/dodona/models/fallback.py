"""A chain of models: if one fails, the next one answers.

    error                                      retry the same model    fall back to the next
    connection, rate limit, server,
    timeout, interrupted                       yes, with backoff       after the retries
    unauthorized, too long, malformed          no                      at once
    rejected with 402, 404 or 410              no                      at once
    rejected                                   no                      no

A rejected request would fail at every provider, except for lack of credit (402) or an unknown
model (404, 410). A request that is too long may fit the context window of the next model. A
provider that sends a Retry-After of more than 20 seconds is not retried.

Once content was delivered there is no further attempt, unless the request allows a restart. Then
`Restart` is delivered right before the first event of the new answer, so that the old content
stays visible until there is a replacement.
"""

from __future__ import annotations

import asyncio
import random as randomness
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from copy import copy
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Self

from dodona.core.errors import ProviderError, ProviderErrorKind
from dodona.core.ports.model import (
    Done,
    FailedAttempt,
    Model,
    ModelEvent,
    ModelRequest,
    ModelStream,
    Restart,
    Usage,
)
from dodona.core.ttl_cache import TtlCache

# The backoff doubles with each retry up to the maximum; half of it is random.
INITIAL_BACKOFF_SECONDS = 0.5
MAX_BACKOFF_SECONDS = 8.0
# Longest wait before a retry, including the provider's Retry-After.
MAX_WAIT_SECONDS = 20.0
# A model that failed twice within this time, for a lasting reason, is tried last for as long.
COOLDOWN_SECONDS = 30.0

_LASTING_ERRORS = frozenset({ProviderErrorKind.UNAUTHORIZED, ProviderErrorKind.CONNECTION})
_PROVIDER_SPECIFIC_STATUSES = frozenset({402, 404, 410})


class FallbackModel:
    """Several models, in order of preference, that act as one."""

    def __init__(
        self,
        models: Sequence[Model],
        *,
        retries: int = 2,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Callable[[], float] = randomness.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not models:
            raise ValueError("a fallback chain needs at least one model")
        self.models = tuple(models)
        self._retry_policy = _RetryPolicy(retries, sleep, random)
        self._cooldowns = _Cooldowns(clock)

    @property
    def provider(self) -> str:
        return self.models[0].provider

    @property
    def name(self) -> str:
        return self.models[0].name

    def limited_to(self, allows: Callable[[str, str], bool]) -> FallbackModel | None:
        """Return the chain without the models that are not allowed; None if none is left.

        `allows` receives a provider and a model. Both chains share their cooldowns.
        """
        allowed = tuple(each for each in self.models if allows(each.provider, each.name))
        if not allowed or allowed == self.models:
            return self if allowed else None
        limited = copy(self)
        limited.models = allowed
        return limited

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelStream]:
        """Stream the answer of the first model that succeeds."""
        async with AsyncExitStack() as exit_stack:
            yield _FallbackStream(
                self._cooldowns.sort_last(self.models),
                request,
                exit_stack,
                retry_policy=self._retry_policy,
                cooldowns=self._cooldowns,
            )


class _FallbackStream:
    """The events of the model that answers.

    `usage` is the total of all attempts, except those already passed to `on_retry`. The usage in
    `Done` is that of the successful answer alone.
    """

    def __init__(
        self,
        models: Sequence[Model],
        request: ModelRequest,
        exit_stack: AsyncExitStack,
        *,
        retry_policy: _RetryPolicy,
        cooldowns: _Cooldowns,
    ) -> None:
        self._model, *remaining = models
        self._remaining = deque(remaining)
        self._request = request
        self._exit_stack = exit_stack
        self._retry_policy = retry_policy
        self._cooldowns = cooldowns
        self._tries = 0  # of this model
        self._attempts: list[FailedAttempt] = []
        self._failed_usage = Usage()
        self._stream: ModelStream | None = None
        self._has_shown_events = False  # by this attempt
        self._needs_restart = False  # an earlier attempt has delivered events
        self._ready: deque[ModelEvent] = deque()
        self._ended = False

    @property
    def usage(self) -> Usage:
        return (
            self._failed_usage
            if self._stream is None
            else _add_usage(self._failed_usage, self._stream.usage)
        )

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ModelEvent:
        while not self._ready:
            if self._ended:
                raise StopAsyncIteration
            try:
                self._deliver(await self._next_event())
            except ProviderError as error:
                await self._recover(error)
        return self._ready.popleft()

    async def _next_event(self) -> ModelEvent:
        if self._stream is None:
            self._tries += 1
            self._stream = await self._exit_stack.enter_async_context(
                self._model.stream(self._request)
            )
        async for event in self._stream:
            return event
        raise ProviderError(
            "the answer ended without a finish reason.",
            kind=ProviderErrorKind.INTERRUPTED,
            provider=self._model.provider,
        )

    def _deliver(self, event: ModelEvent) -> None:
        if self._needs_restart:
            self._ready.append(Restart(self._attempts[-1].reason))
            self._needs_restart = False
        if isinstance(event, Done):
            self._cooldowns.record_success(self._model)
            self._ended = True
            event = replace(event, attempts=(*self._attempts, *event.attempts))
        self._has_shown_events = True
        self._ready.append(event)

    async def _recover(self, error: ProviderError) -> None:
        """Prepare another attempt, or raise the error."""
        model = self._model
        used = Usage() if self._stream is None else self._stream.usage
        attempt = FailedAttempt(
            model.provider, model.name, error.message, used, error.may_be_billed
        )
        self._attempts.append(attempt)
        self._failed_usage, self._stream = self.usage, None
        await self._exit_stack.aclose()
        self._needs_restart = self._needs_restart or self._has_shown_events
        if self._has_shown_events and not self._request.allow_restart:
            self._ended = True
            raise error
        self._has_shown_events = False
        delay = self._retry_policy.retry_delay(error, self._tries)
        if delay is not None:
            await self._retry_policy.sleep(delay)
        else:
            self._switch_model(error)
        await self._request_retry(attempt)

    async def _request_retry(self, attempt: FailedAttempt) -> None:
        """Ask the caller to approve the attempt; the caller accounts for the usage so far."""
        if self._request.on_retry is None:
            return
        self._failed_usage = Usage()
        self._ended = True  # the stream ends if `on_retry` raises
        await self._request.on_retry(attempt, self._model)
        self._ended = False

    def _switch_model(self, error: ProviderError) -> None:
        """Switch to the next model if there is one and it may succeed; else raise."""
        self._cooldowns.record_failure(self._model, error.kind)
        if not self._remaining or not _may_work_elsewhere(error):
            self._ended = True
            raise _combine_errors(self._attempts, error)
        self._model = self._remaining.popleft()
        self._tries = 0


@dataclass(frozen=True, slots=True)
class _RetryPolicy:
    """How often and when a model is retried."""

    retries: int
    sleep: Callable[[float], Awaitable[None]]
    random: Callable[[], float]

    def retry_delay(self, error: ProviderError, tries: int) -> float | None:
        """Return the seconds until the same model is retried; None if it is not.

        If Retry-After exceeds `MAX_WAIT_SECONDS` there is no retry: an earlier one would only
        prolong the rate limit.
        """
        retry_after = max(0.0, error.retry_after or 0.0)
        if not error.is_retryable or tries > self.retries or retry_after > MAX_WAIT_SECONDS:
            return None
        backoff = min(INITIAL_BACKOFF_SECONDS * 2.0 ** (tries - 1), MAX_BACKOFF_SECONDS)
        return min(retry_after + backoff * (1 + self.random()) / 2, MAX_WAIT_SECONDS)


class _Cooldowns:
    """Models that recently failed for a lasting reason: an invalid key, no connection."""

    def __init__(self, clock: Callable[[], float]) -> None:
        # By model id, how often it failed.
        self._failures: TtlCache[int, int] = TtlCache(COOLDOWN_SECONDS, max_size=64, clock=clock)

    def sort_last(self, models: Sequence[Model]) -> list[Model]:
        """Return the models with those that are cooling down last."""
        return sorted(models, key=self._is_cooling_down)

    def record_failure(self, model: Model, kind: ProviderErrorKind) -> None:
        if kind in _LASTING_ERRORS:
            self._failures.put(id(model), (self._failures.get(id(model)) or 0) + 1)

    def record_success(self, model: Model) -> None:
        self._failures.discard(id(model))

    def _is_cooling_down(self, model: Model) -> bool:
        return (self._failures.get(id(model)) or 0) >= 2


def _may_work_elsewhere(error: ProviderError) -> bool:
    return (
        error.kind is not ProviderErrorKind.REJECTED or error.status in _PROVIDER_SPECIFIC_STATUSES
    )


def _combine_errors(attempts: Sequence[FailedAttempt], last: ProviderError) -> ProviderError:
    """Return the only error, or one that lists every attempt and has the kind of the last."""
    if len(attempts) == 1:
        return last
    failures: list[str] = []
    for attempt, same in groupby(attempts):
        count = len(list(same))
        times = f" ({count} times)" if count > 1 else ""
        failures.append(f"{attempt.provider}/{attempt.model}{times}: {attempt.reason}")
    error = ProviderError(
        f"all {len(attempts)} attempts failed. {' '.join(failures)}",
        kind=last.kind,
        provider=last.provider,
        status=last.status,
        retry_after=last.retry_after,
        hint=last.hint,
    )
    error.__cause__ = last
    return error


def _add_usage(one: Usage, other: Usage) -> Usage:
    """Add two usages. The cost is unknown if either is; `wire` is taken from the later one."""
    if one == Usage():
        return other
    if other == Usage():
        return one
    costs = (one.cost_usd, other.cost_usd)
    return Usage(
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        cache_read_tokens=one.cache_read_tokens + other.cache_read_tokens,
        cache_write_tokens=one.cache_write_tokens + other.cache_write_tokens,
        reasoning_tokens=one.reasoning_tokens + other.reasoning_tokens,
        cost_usd=None if None in costs else sum(cost for cost in costs if cost is not None),
        wire=other.wire or one.wire,
        estimated=one.estimated or other.estimated,
    )
