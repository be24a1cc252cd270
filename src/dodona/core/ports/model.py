"""The port of language models: a request goes in, a stream of events comes out.

    async with model.stream(request) as stream:
        async for event in stream:
            ...

Leaving the block closes the connection, also in mid-answer. The last event is `Done`; a stream
that ends otherwise raises `ProviderError`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, Protocol, Self, TypeAlias

from dodona.core.messages import AssistantText, Message, ToolSpec


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether tools may be called, must be, or which one must: that of `name`."""

    mode: Literal["none", "auto", "required", "named"]
    name: str = ""

    @property
    def is_forced(self) -> bool:
        return self.mode in ("required", "named")


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One call of a model. `None` leaves a setting to the provider.

    What a provider cannot do of it, it refuses; nothing is left out in silence.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int | None = None
    temperature: float | None = None
    thinking: bool = False
    cache_key: str = ""  # the same for requests that share a prefix: routes to a warm cache
    allow_restart: bool = False  # may an answer begin anew after some of it was shown?
    stop: tuple[str, ...] = ()  # texts before which the answer ends
    tool_choice: ToolChoice | None = None
    parallel_calls: bool | None = None  # may one answer call several tools?
    response_format: Mapping[str, Any] | None = None  # OpenAI's own JSON of it
    # Awaited when an attempt came to nothing, before this model makes another: it may refuse that.
    on_retry: Callable[[FailedAttempt, Model], Awaitable[None]] | None = field(
        default=None, compare=False
    )


@dataclass(frozen=True, slots=True)
class Usage:
    """What a call used. Unlike on the wires, the numbers mean the same for every provider.

    `input_tokens` includes cache reads and writes, `output_tokens` includes reasoning.
    `wire` is the provider's own account, untouched. `estimated`: it left something out, which was
    counted here, or is to be filled in by whoever knows.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float | None = None  # only as the provider says it; never computed here
    wire: Mapping[str, Any] = field(default_factory=dict[str, Any])
    estimated: bool = False


class FinishReason(Enum):
    """Why an answer ended."""

    STOP = "stop"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"
    REFUSAL = "refusal"  # the provider's filter, or the model declined
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    text: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A piece of a call's arguments: a sign of life. Whole calls are in `Done.message`."""

    index: int
    name: str
    text: str
    id: str = ""  # of the call, once the provider has told it


@dataclass(frozen=True, slots=True)
class Restart:
    """The answer begins anew, from another model perhaps: drop what this stream gave so far."""

    reason: str


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """A try that came to nothing, and why. What it used was used, and is billed."""

    provider: str
    model: str
    reason: str
    usage: Usage = field(default_factory=Usage, compare=False)
    may_be_billed: bool = field(default=True, compare=False)


@dataclass(frozen=True, slots=True)
class Done:
    """The whole answer, and who gave it; `attempts` are the tries before it.

    `usage` is the answer's own; each attempt has its own too.
    """

    finish: FinishReason
    message: AssistantText
    usage: Usage
    provider: str
    model: str  # as the provider calls what answered
    wire_finish: str = ""
    attempts: tuple[FailedAttempt, ...] = ()


ModelEvent: TypeAlias = TextDelta | ThinkingDelta | CallDelta | Restart | Done


class ModelStream(Protocol):
    """The events of one answer."""

    @property
    def usage(self) -> Usage:
        """What the provider has accounted for so far: the best there is of a call cut short."""
        ...

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> ModelEvent: ...


class Model(Protocol):
    """A provider and one of its models. `stream` may be called any number of times at once."""

    @property
    def provider(self) -> str: ...

    @property
    def name(self) -> str: ...

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[ModelStream]: ...


class TokenCounter(Protocol):
    """Counts tokens as the named model would."""

    def count(self, text: str, model: str) -> int: ...


@dataclass(frozen=True, slots=True)
class ChosenModel:
    """A model, and how it is to be asked; `fallbacks` are the others that may answer instead."""

    model: Model
    context_size: int
    max_tokens: int
    temperature: float | None = None
    fallbacks: tuple[tuple[str, str], ...] = ()


class Models(Protocol):
    """The models there are."""

    async def choose(self, name: str = "", *, agent: str = "") -> ChosenModel:
        """The model of this name, or the one that answers for an agent, or for the default one."""
        ...
