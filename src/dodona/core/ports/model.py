"""The port of language models: send a request, receive a stream of events.

    async with model.stream(request) as stream:
        async for event in stream:
            ...

Leaving the block closes the connection, even mid-answer. The last event is `Done`; a stream
that ends without one raises `ProviderError`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, Protocol, Self, TypeAlias

from dodona.core.domain.api_tokens import ApiToken
from dodona.core.extensions import Extension
from dodona.core.messages import AssistantText, Message, ToolSpec


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether tools may be called, must be called, or which tool must be called (`name`)."""

    mode: Literal["none", "auto", "required", "named"]
    name: str = ""

    @property
    def is_forced(self) -> bool:
        return self.mode in ("required", "named")


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call. `None` leaves a setting to the provider.

    `thinking` applies to models that are known to support it, and with `is_thinking_requested` to
    any model. If a provider rejects an optional parameter such as the temperature, the request is
    sent again without it.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int | None = None
    temperature: float | None = None
    thinking: bool = False
    is_thinking_requested: bool = False  # by a person or a client, not by a default
    cache_key: str = ""  # the same for requests with a common prefix: routes to a warm cache
    allow_restart: bool = False  # may the answer start again after parts of it were shown?
    stop: tuple[str, ...] = ()  # stop sequences
    tool_choice: ToolChoice | None = None
    parallel_calls: bool | None = None  # may one answer call several tools?
    response_format: Mapping[str, Any] | None = None  # in OpenAI's JSON format
    # Awaited after a failed attempt, before the next one: it may raise to prevent a retry.
    on_retry: Callable[[FailedAttempt, Model], Awaitable[None]] | None = field(
        default=None, compare=False
    )


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of a call. Unlike in the wire formats, the numbers mean the same for all providers.

    `input_tokens` includes cache reads and writes, `output_tokens` includes reasoning.
    `wire` is the provider's own report, unchanged. `estimated`: the report was incomplete, and the
    missing numbers are estimated here or to be filled in by the caller.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_usd: float | None = None  # only as the provider reports it; never computed here
    wire: Mapping[str, Any] = field(default_factory=dict[str, Any])
    estimated: bool = False


class FinishReason(Enum):
    """Why an answer ended."""

    STOP = "stop"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"
    REFUSAL = "refusal"  # the provider's filter blocked it, or the model declined
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    text: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A piece of a call's arguments, as a sign of progress. `Done.message` has complete calls."""

    index: int
    name: str
    text: str
    id: str = ""  # of the call, once the provider has sent it


@dataclass(frozen=True, slots=True)
class Restart:
    """The answer starts again, perhaps from another model: discard this stream's events so far."""

    reason: str


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """A failed attempt and the reason. Its usage counts and is billed."""

    provider: str
    model: str
    reason: str
    usage: Usage = field(default_factory=Usage, compare=False)
    may_be_billed: bool = field(default=True, compare=False)


@dataclass(frozen=True, slots=True)
class Done:
    """The complete answer and the model that gave it; `attempts` failed before.

    `usage` covers this answer only; each attempt has its own.
    """

    finish: FinishReason
    message: AssistantText
    usage: Usage
    provider: str
    model: str  # the provider's name for it
    attempts: tuple[FailedAttempt, ...] = ()


ModelEvent: TypeAlias = TextDelta | ThinkingDelta | CallDelta | Restart | Done


class ModelStream(Protocol):
    """The events of one answer."""

    @property
    def usage(self) -> Usage:
        """Usage reported so far: the best available number for an interrupted call."""
        ...

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> ModelEvent: ...


class Model(Protocol):
    """A model of a provider. `stream` may be called concurrently."""

    @property
    def provider(self) -> str: ...

    @property
    def name(self) -> str: ...

    def stream(self, request: ModelRequest) -> AbstractAsyncContextManager[ModelStream]: ...


class ModelTimeouts(Protocol):
    """Timeouts of a model call, in seconds."""

    @property
    def connect(self) -> float: ...

    @property
    def first_token(self) -> float: ...

    @property
    def gap(self) -> float:
        """The time between two pieces of an answer."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """What the section of an agent says about its model."""

    model: str
    api_key: str = field(default="", repr=False)
    base_url: str = ""
    timeouts: ModelTimeouts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProvider(Extension):
    """A provider by name, and the function that builds one of its models. It sends no request."""

    name: str
    build: Callable[[ModelOptions], Model]
    default_model: str = ""


class TokenCounter(Protocol):
    """Counts tokens as a given model would."""

    def count(self, text: str, model: str) -> int: ...


@dataclass(frozen=True, slots=True)
class ChosenModel:
    """A model and its settings; `fallbacks` are the other models that may answer."""

    model: Model
    context_size: int
    max_tokens: int
    temperature: float | None = None
    fallbacks: tuple[tuple[str, str], ...] = ()


class Models(Protocol):
    """The configured models."""

    async def choose(
        self, name: str = "", *, agent: str = "", token: ApiToken | None = None
    ) -> ChosenModel:
        """Choose a model by name, or the model of an agent, or that of the default agent.

        If `token` allows only some models, the others in the agent's chain are skipped. A model
        that is chosen by name is not replaced. Raises AccessDenied if no allowed model is left.
        """
        ...

    async def choose_override(
        self, name: str, *, agent: str = "", token: ApiToken | None = None
    ) -> ChosenModel | None:
        """Choose the model `vendor/model` of a subagent, with the agent's models as its fallbacks.

        None if the agent uses no provider that has it.
        """
        ...
