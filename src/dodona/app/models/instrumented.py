"""Wraps models to record metrics of each call: outcome, usage, cost and latency."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from time import perf_counter
from typing import Self

from dodona.core.domain.api_tokens import ApiToken
from dodona.core.domain.budgets import has_no_usage
from dodona.core.errors import ProviderError
from dodona.core.ports.model import (
    ChosenModel,
    Done,
    Model,
    ModelEvent,
    ModelRequest,
    Models,
    ModelStream,
    Usage,
)
from dodona.metering.prices import Prices
from dodona.telemetry.metrics import Metrics


class InstrumentedModels:
    """A `Models` that records metrics for the models of another."""

    def __init__(self, models: Models, metrics: Metrics, prices: Prices) -> None:
        self._models = models
        self._metrics = metrics
        self._prices = prices

    async def choose(
        self, name: str = "", *, agent: str = "", token: ApiToken | None = None
    ) -> ChosenModel:
        return self._instrument(await self._models.choose(name, agent=agent, token=token))

    async def choose_override(
        self, name: str, *, agent: str = "", token: ApiToken | None = None
    ) -> ChosenModel | None:
        chosen = await self._models.choose_override(name, agent=agent, token=token)
        return None if chosen is None else self._instrument(chosen)

    def _instrument(self, chosen: ChosenModel) -> ChosenModel:
        return replace(chosen, model=InstrumentedModel(chosen.model, self._metrics, self._prices))


class InstrumentedModel:
    """A `Model` that records metrics for another."""

    def __init__(self, model: Model, metrics: Metrics, prices: Prices) -> None:
        self._model = model
        self._metrics = metrics
        self._prices = prices
        self.provider = model.provider
        self.name = model.name
        self._labels = metrics.model_labels(model.provider, model.name)

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[ModelStream]:
        return self._stream(request)

    @asynccontextmanager
    async def _stream(self, request: ModelRequest) -> AsyncGenerator[ModelStream]:
        started_at = perf_counter()
        call: _InstrumentedStream | None = None
        outcome = "cancelled"  # if the consumer leaves before the end
        try:
            async with self._model.stream(request) as stream:
                call = _InstrumentedStream(stream, started_at, self)
                yield call
        except ProviderError as error:
            outcome = error.kind.value
            raise
        except Exception:
            outcome = "error"
            raise
        finally:
            if call is None or call.done is None:
                self._record_call(
                    self.provider, self.name, outcome, call.usage if call else Usage()
                )
            seconds = perf_counter() - started_at
            self._metrics.model_seconds.labels(*self._labels).observe(seconds)

    def record_answer(self, done: Done) -> None:
        """Record the call that succeeded, and the failed attempts before it."""
        for each in done.attempts:
            self._record_call(each.provider, each.model, "failed", each.usage)
        # Providers return longer model names than requested: record the requested one.
        is_ours = done.provider == self.provider and not done.attempts
        self._record_call(done.provider, self.name if is_ours else done.model, "ok", done.usage)

    def record_first_token(self, started_at: float) -> None:
        """Record the time to the first token."""
        seconds = perf_counter() - started_at
        self._metrics.first_token_seconds.labels(*self._labels).observe(seconds)

    def _record_call(self, provider: str, name: str, outcome: str, usage: Usage) -> None:
        metrics = self._metrics
        labels = metrics.model_labels(provider, name)
        metrics.model_calls.labels(*labels, outcome).inc()
        for kind, tokens in _tokens_by_kind(usage).items():
            if tokens > 0:
                metrics.model_tokens.labels(*labels, kind).inc(tokens)
        if has_no_usage(usage):
            return
        now = datetime.now(UTC)
        cost = self._prices.cost(usage, provider=provider, model=name, at=now)
        if cost is None:
            metrics.model_unpriced.labels(*labels).inc()
        else:
            metrics.model_cost.labels(*labels).inc(float(cost))


def _tokens_by_kind(usage: Usage) -> dict[str, int]:
    return {
        "input": usage.input_tokens,
        "output": usage.output_tokens,
        "cache_read": usage.cache_read_tokens,
        "cache_write": usage.cache_write_tokens,
        "reasoning": usage.reasoning_tokens,
    }


class _InstrumentedStream:
    """The stream of one call, passed through unchanged."""

    def __init__(self, stream: ModelStream, started_at: float, model: InstrumentedModel) -> None:
        self._stream = stream
        self._started_at = started_at
        self._model = model
        self._has_started = False
        self.done: Done | None = None

    @property
    def usage(self) -> Usage:
        return self._stream.usage

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ModelEvent:
        event = await self._stream.__anext__()
        if not self._has_started:
            self._has_started = True
            self._model.record_first_token(self._started_at)
        if type(event) is Done:
            self.done = event
            self._model.record_answer(event)
        return event
