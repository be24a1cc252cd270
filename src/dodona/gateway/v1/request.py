"""Chat completion requests. A request with an unsupported field is refused.

Fields of OpenAI's API that do not affect the answer are ignored. Fields that would affect it, but
are not supported, are refused unless they have their default value.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, field

from dodona.core.errors import InvalidField, did_you_mean
from dodona.core.json_document import RequestDocument
from dodona.gateway.http.parameter import text
from dodona.gateway.v1.messages import (
    MAX_MESSAGES,
    V1AssistantMessage,
    V1Message,
    V1ToolMessage,
)

MAX_TOOLS: Final = 128

Ignored: TypeAlias = Annotated[Any, Meta(description="Ignored.")]
TokenLimit: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000)]
StopText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=1_000)]
Zero: TypeAlias = Annotated[float, Meta(ge=0, le=0)]


class V1StreamOptions(Struct, forbid_unknown_fields=True):
    """Options of a stream."""

    include_usage: Annotated[bool, Meta(description="Add a final chunk with the usage.")] = False
    include_obfuscation: Ignored = None


class V1Function(Struct):
    """A function of the client."""

    name: Annotated[
        str,
        Meta(
            pattern=r"^[a-zA-Z0-9_-]{1,64}$(?!\n)",  # Python's `$` matches before a final \n, too
            extra={"hint": "Use 1 to 64 of the characters a-z, A-Z, 0-9, _ and -."},
        ),
    ]
    description: str | None = None
    parameters: Annotated[
        dict[str, Any] | None, Meta(description="The JSON Schema of an object.")
    ] = None
    strict: bool | None = None


class V1Tool(Struct, tag_field="type", tag="function"):
    """A tool of the client."""

    function: V1Function


class V1ResponseFormat(Struct):
    """The format of the answer."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: dict[str, Any] | UnsetType = UNSET


class V1Request(RequestDocument, kw_only=True):
    """A request for a chat completion."""

    model: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=300,
            description="An agent, or `agent/model` to select its model.",
            examples=["oracle"],
        ),
    ]
    messages: Annotated[list[V1Message], Meta(min_length=1, max_length=MAX_MESSAGES)]
    user: Annotated[str, text("Selects a session, which keeps its history.")] | None = None
    stream: bool = False
    stream_options: V1StreamOptions | None = None
    max_tokens: TokenLimit | None = None
    max_completion_tokens: TokenLimit | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    stop: StopText | Annotated[list[StopText], Meta(max_length=4)] | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    tools: Annotated[
        list[V1Tool],
        Meta(
            max_length=MAX_TOOLS,
            description="The client's own tools. The agent's model answers directly.",
        ),
    ] = field(default_factory=list[V1Tool])
    tool_choice: Annotated[
        Literal["none", "auto", "required"] | V1Tool | None,
        Meta(description="An object names the tool that must be called."),
    ] = None
    parallel_tool_calls: bool | None = None
    response_format: Annotated[V1ResponseFormat | None, Meta(description="Only with tools.")] = None

    # Metadata for the server, without effect on the answer.
    metadata: Ignored = None
    prediction: Ignored = None
    prompt_cache_key: Ignored = None
    prompt_cache_retention: Ignored = None
    safety_identifier: Ignored = None
    seed: Ignored = None
    service_tier: Ignored = None
    store: Ignored = None

    # Not supported: these accept only their default.
    n: Annotated[Literal[1], Meta(extra={"hint": "Send one request per answer."})] = 1
    top_p: Annotated[float, Meta(ge=1, le=1)] = 1.0
    frequency_penalty: Zero = 0.0
    presence_penalty: Zero = 0.0
    logit_bias: Annotated[dict[str, Any], Meta(max_length=0)] | None = None
    logprobs: Annotated[bool, Meta(description="Only false.")] = False
    top_logprobs: Literal[0] = 0
    modalities: Annotated[list[Literal["text"]], Meta(min_length=1, max_length=1)] | None = None
    verbosity: Literal["medium"] = "medium"
    audio: None = None
    web_search_options: None = None
    functions: Annotated[None, Meta(extra={"hint": "Use tools."})] = None
    function_call: Annotated[None, Meta(extra={"hint": "Use tool_choice."})] = None

    def __post_init__(self) -> None:
        """Check the fields against each other. `max_tokens` gets the value of its newer name."""
        if self.response_format is not None and self.response_format.type == "text":
            self.response_format = None
        if self.logprobs:
            raise InvalidField("logprobs must be false.", field="logprobs", hint="Omit it.")
        if self.max_completion_tokens is not None:
            if self.max_tokens not in (None, self.max_completion_tokens):
                raise InvalidField(
                    "max_tokens and max_completion_tokens conflict.",
                    field="max_tokens",
                    hint="Send only max_completion_tokens.",
                )
            self.max_tokens = self.max_completion_tokens
        self._check_tools()

    def _check_tools(self) -> None:
        names = [tool.function.name for tool in self.tools]
        for index, name in enumerate(names):
            if name in names[:index]:
                raise InvalidField(f"two tools are named {name!r}.", field=f"tools[{index}]")
        choice = self.tool_choice
        if isinstance(choice, V1Tool) and choice.function.name not in names:
            raise InvalidField(
                f"tool_choice names {choice.function.name!r:.80}, which is not in tools.",
                field="tool_choice",
                hint=did_you_mean(choice.function.name, names),
            )
        if choice == "required" and not names:
            raise InvalidField("tool_choice requires tools.", field="tool_choice")

    @property
    def is_passthrough(self) -> bool:
        """Whether the client sends its own tools, or their results."""
        return bool(self.tools) or any(
            isinstance(each, V1ToolMessage)
            or (isinstance(each, V1AssistantMessage) and each.tool_calls)
            for each in self.messages
        )

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def stop_texts(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def thinking(self) -> bool | None:
        """Whether the model thinks first; None if not specified."""
        effort = self.reasoning_effort
        return None if effort is None else effort not in ("none", "minimal")
