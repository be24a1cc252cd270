"""The decorators `model` and `subscriber`. The others are in the packages that they belong to."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, Self, TypeVar, Unpack

from dodona.core.domain.notices import SubscriberExtension, SubscriberFunction, SubscriberOptions
from dodona.core.errors import ExtensionError
from dodona.core.extensions import attach, location_of
from dodona.core.messages import AssistantText, ToolCall
from dodona.core.ports.model import (
    Done,
    FinishReason,
    Model,
    ModelEvent,
    ModelOptions,
    ModelProvider,
    ModelRequest,
    ModelStream,
    TextDelta,
    Usage,
)

F = TypeVar("F", bound=Callable[..., Any])


def model(provider: str, *, default: str = "") -> Callable[[F], F]:
    """Declare a model provider, for `provider` in the section of an agent.

    The decorated function takes `ModelOptions` and returns a `Model`. An async generator function
    is a model itself: it takes a `ModelRequest`, and yields texts and tool calls.
    """

    def declare(function: F) -> F:
        @wraps(function)  # so that errors and the loop monitor find it
        def build_generator(options: ModelOptions) -> Model:
            return _GeneratorModel(provider, options.model, function)

        build = build_generator if inspect.isasyncgenfunction(function) else function
        attach(function, ModelProvider(name=provider, build=build, default_model=default))
        return function

    return declare


def subscriber(
    *events: str, **options: Unpack[SubscriberOptions]
) -> Callable[[SubscriberFunction], SubscriberFunction]:
    """Declare a subscriber: a function of events that returns the text of a notice, or None.

    `events` are patterns such as `tool.call.*`. The function may be called again with the same
    events after a crash, so its text must depend on them only.
    """

    def declare(function: SubscriberFunction) -> SubscriberFunction:
        if not events:
            raise ExtensionError(
                f"subscriber '{function.__name__}' matches no events.",
                where=location_of(function),
                hint='Write @subscriber("tool.call.failure").',
            )
        attach(function, SubscriberExtension(function, tuple(events), options))
        return function

    return declare


class _GeneratorModel:
    """A model whose answers an async generator function yields."""

    def __init__(self, provider: str, name: str, function: Callable[..., Any]) -> None:
        self.provider = provider
        self.name = name
        self._function = function

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelStream]:
        """Stream the answer; the generator is closed with it."""
        pieces: Any = self._function(request)
        try:
            yield _GeneratorStream(self, pieces)
        finally:
            await pieces.aclose()


class _GeneratorStream:
    """The events of one answer. Usage is unknown, so it is counted."""

    def __init__(self, model: _GeneratorModel, pieces: AsyncIterator[str | ToolCall]) -> None:
        self._model = model
        self._pieces = pieces
        self._texts: list[str] = []
        self._calls: list[ToolCall] = []
        self._is_done = False

    @property
    def usage(self) -> Usage:
        return Usage(estimated=True)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ModelEvent:
        if self._is_done:
            raise StopAsyncIteration
        async for piece in self._pieces:
            if isinstance(piece, str):
                self._texts.append(piece)
                return TextDelta(piece)
            self._calls.append(piece)
        self._is_done = True
        calls = tuple(self._calls)
        return Done(
            FinishReason.TOOL_CALLS if calls else FinishReason.STOP,
            AssistantText("".join(self._texts), calls),
            self.usage,
            self._model.provider,
            self._model.name,
        )
