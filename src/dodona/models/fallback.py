"""A chain of models: the next one answers when one cannot.

    fault                                      the same model again    the next model
    connection, rate limited, server,
    silent, cut                                yes, after a pause      then
    unauthorised, too long, garbled            no                      at once
    refused with 402, 404 or 410               no                      at once
    refused                                    no                      no

A refused request is wrong, and wrong everywhere; but no credit (402) or no such model (404, 410)
says something of that provider only. Another window may hold what is too long for this one. A
provider that asks for more than 20 seconds of peace is left alone: the next model, or its error.

Once content was shown nothing is tried again, unless the request allows a restart: then `Restart`
comes right before the first event of the new answer, so that nothing is dropped for nothing.
"""

from __future__ import annotations

import asyncio
import random as randomness
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Self

from dodona.core.errors import Fault, ProviderError
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

# Seconds. Pauses double from the first to the longest; half of each is left to chance.
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 8.0
# Nobody waits longer than this for a model, whatever its provider asks for.
PATIENCE = 20.0
# A model that failed twice within this time, for a reason that lasts, comes last for as long.
REST = 30.0

_LASTING = frozenset({Fault.UNAUTHORISED, Fault.CONNECTION})
_THIS_PROVIDER_ONLY = frozenset({402, 404, 410})


class Fallback:
    """Models in order of preference, as one."""

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
            raise ValueError("a chain needs at least one model")
        self._models = tuple(models)
        self._pauses = _Pauses(retries, sleep, random)
        self._resting = _Resting(clock)

    @property
    def provider(self) -> str:
        return self._models[0].provider

    @property
    def name(self) -> str:
        return self._models[0].name

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelStream]:
        async with AsyncExitStack() as opened:
            models = self._resting.last(self._models)
            yield _Chain(models, request, opened, pauses=self._pauses, resting=self._resting)


class _Chain:
    """The events of whichever model answers.

    `usage` is that of every attempt, without those that `again` was told of; the usage in `Done`
    is the answer's own, as on the wire.
    """

    def __init__(
        self,
        models: Sequence[Model],
        request: ModelRequest,
        opened: AsyncExitStack,
        *,
        pauses: _Pauses,
        resting: _Resting,
    ) -> None:
        self._model, *ahead = models
        self._ahead = deque(ahead)
        self._request = request
        self._opened = opened
        self._pauses = pauses
        self._resting = resting
        self._tries = 0  # of this model
        self._attempts: list[FailedAttempt] = []
        self._spent = Usage()
        self._stream: ModelStream | None = None
        self._shown = False  # has the caller seen something of this attempt?
        self._stale = False  # … of one before?
        self._ready: deque[ModelEvent] = deque()
        self._ended = False

    @property
    def usage(self) -> Usage:
        return self._spent if self._stream is None else _sum(self._spent, self._stream.usage)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ModelEvent:
        while not self._ready:
            if self._ended:
                raise StopAsyncIteration
            try:
                self._deliver(await self._next())
            except ProviderError as error:
                await self._recover(error)
        return self._ready.popleft()

    async def _next(self) -> ModelEvent:
        if self._stream is None:
            self._tries += 1
            self._stream = await self._opened.enter_async_context(self._model.stream(self._request))
        async for event in self._stream:
            return event
        raise ProviderError(
            "the answer ended without a finish.", fault=Fault.CUT, provider=self._model.provider
        )

    def _deliver(self, event: ModelEvent) -> None:
        if self._stale:
            self._ready.append(Restart(self._attempts[-1].reason))
            self._stale = False
        if isinstance(event, Done):
            self._resting.answered(self._model)
            self._ended = True
            event = replace(event, attempts=(*self._attempts, *event.attempts))
        self._shown = True
        self._ready.append(event)

    async def _recover(self, error: ProviderError) -> None:
        """Make ready for another attempt, or raise."""
        model = self._model
        used = Usage() if self._stream is None else self._stream.usage
        attempt = FailedAttempt(
            model.provider, model.name, error.message, used, error.may_be_billed
        )
        self._attempts.append(attempt)
        self._spent, self._stream = self.usage, None
        await self._opened.aclose()
        self._stale = self._stale or self._shown
        if self._shown and not self._request.allow_restart:
            self._ended = True
            raise error
        self._shown = False
        pause = self._pauses.before_retry(error, self._tries)
        if pause is not None:
            await self._pauses.sleep(pause)
        else:
            self._go_on(error)
        await self._ask_leave(attempt)

    async def _ask_leave(self, attempt: FailedAttempt) -> None:
        """What was used is another's concern from now on, and so is whether it may be tried."""
        if self._request.on_retry is None:
            return
        self._spent = Usage()
        self._ended = True  # unless it may
        await self._request.on_retry(attempt, self._model)
        self._ended = False

    def _go_on(self, error: ProviderError) -> None:
        """Turn to the next model, if there is one and it may fare better."""
        self._resting.failed(self._model, error.fault)
        if not self._ahead or not _may_work_elsewhere(error):
            self._ended = True
            raise _all_failed(self._attempts, error)
        self._model = self._ahead.popleft()
        self._tries = 0


@dataclass(frozen=True, slots=True)
class _Pauses:
    """How often a model is tried again, and when."""

    retries: int
    sleep: Callable[[float], Awaitable[None]]
    random: Callable[[], float]

    def before_retry(self, error: ProviderError, tries: int) -> float | None:
        """Seconds until the same model is tried again; None when it is not.

        A provider that asks for more than `PATIENCE` is not asked again: to come back sooner
        than it says would only make it angrier.
        """
        asked = max(0.0, error.retry_after or 0.0)
        if not error.is_retryable or tries > self.retries or asked > PATIENCE:
            return None
        pause = min(FIRST_PAUSE * 2.0 ** (tries - 1), LONGEST_PAUSE)
        return min(asked + pause * (1 + self.random()) / 2, PATIENCE)


class _Resting:
    """Models that lately failed for reasons that last: a wrong key, nobody there."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failures: dict[int, tuple[int, float]] = {}  # by model: how often, when last

    def last(self, models: Sequence[Model]) -> list[Model]:
        """The same models, those that rest behind the others."""
        return sorted(models, key=self._rests)

    def failed(self, model: Model, fault: Fault) -> None:
        if fault in _LASTING:
            self._failures[id(model)] = (self._recent(model) + 1, self._clock())

    def answered(self, model: Model) -> None:
        self._failures.pop(id(model), None)

    def _rests(self, model: Model) -> bool:
        return self._recent(model) >= 2

    def _recent(self, model: Model) -> int:
        times, last = self._failures.get(id(model), (0, 0.0))
        return times if self._clock() - last < REST else 0


def _may_work_elsewhere(error: ProviderError) -> bool:
    return error.fault is not Fault.REFUSED or error.status in _THIS_PROVIDER_ONLY


def _all_failed(attempts: Sequence[FailedAttempt], last: ProviderError) -> ProviderError:
    """The only error, or one that names every attempt and stands for the last."""
    if len(attempts) == 1:
        return last
    tries: list[str] = []
    for attempt, same in groupby(attempts):
        times = len(list(same))
        often = f" ({times} times)" if times > 1 else ""
        tries.append(f"{attempt.provider}/{attempt.model}{often}: {attempt.reason}")
    error = ProviderError(
        f"{len(attempts)} attempts came to nothing. {' '.join(tries)}",
        fault=last.fault,
        provider=last.provider,
        status=last.status,
        retry_after=last.retry_after,
        hint=last.hint,
    )
    error.__cause__ = last
    return error


def _sum(one: Usage, other: Usage) -> Usage:
    """Both together; the cost is unknown if one of them is, and `wire` is the later account."""
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
