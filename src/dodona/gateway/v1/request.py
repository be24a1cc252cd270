"""Chat completion requests. A request with an unsupported field is refused.

Fields of OpenAI's API that do not affect the answer are ignored. Fields that would affect it, but
are not supported, are refused unless they have their default value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from dodona.core.errors import BadRequest, DodonaError, did_you_mean
from dodona.core.messages import ToolSpec
from dodona.core.ports.model import ToolChoice
from dodona.gateway.http.openai_errors import InvalidParameter
from dodona.gateway.v1.messages import ChatMessage, read_messages
from dodona.gateway.v1.tools import read_tool_choice, read_tools

MAX_TOKENS: Final = 1_000_000
MAX_STOPS: Final = 4
MAX_STOP_LENGTH: Final = 1_000
MAX_USER_LENGTH: Final = 200
MAX_MODEL_LENGTH: Final = 300

# Metadata for the server, without effect on the answer.
IGNORED_FIELDS: Final = (
    *("metadata", "prediction", "prompt_cache_key", "prompt_cache_retention", "safety_identifier"),
    *("seed", "service_tier", "store"),
)
# Unsupported fields with their allowed values.
FIXED_FIELDS: Final[Mapping[str, tuple[Any, ...]]] = {
    "n": (1,),
    "top_p": (1,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "modalities": (["text"],),
    "verbosity": ("medium",),
    "audio": (),
    "web_search_options": (),
    "functions": (),
    "function_call": (),
}
_THINKING_BY_EFFORT: Final = {
    **dict.fromkeys(("none", "minimal"), False),
    **dict.fromkeys(("low", "medium", "high", "xhigh"), True),
}
_HINTS: Final = {
    "functions": "Use tools.",
    "function_call": "Use tool_choice.",
    "n": "Send one request per answer.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """`user` selects a session, which keeps its history. `thinking` is None if not specified."""

    model: str
    messages: tuple[ChatMessage, ...]
    user: str | None = None
    stream: bool = False
    include_usage: bool = False
    max_tokens: int | None = None
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    thinking: bool | None = None
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel_calls: bool | None = None
    response_format: Mapping[str, Any] | None = None

    @property
    def is_passthrough(self) -> bool:
        """Whether the client sends its own tools, or their results."""
        return bool(self.tools) or any(
            message.calls or message.role == "tool" for message in self.messages
        )

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> ChatRequest:
        """Parse a body. Raises BadRequest with all problems together."""
        errors: list[DodonaError] = [*_unknown_field_errors(body), *_fixed_field_errors(body)]
        values: dict[str, Any] = {}
        for name, read in _READERS.items():
            try:
                if body.get(name) is not None or name in _REQUIRED:
                    values[name] = read(body.get(name))
            except BadRequest as error:
                errors.extend(error.problems())
        if errors:
            raise BadRequest.combine(errors)
        return cls(**_normalize_fields(values))


def _unknown_field_errors(body: Mapping[str, Any]) -> Iterator[InvalidParameter]:
    field_names = (*_READERS, *FIXED_FIELDS, *IGNORED_FIELDS)
    for name in body:
        if name not in field_names:
            hint = did_you_mean(name, field_names)
            yield InvalidParameter(f"there is no field {name!r:.80}.", param=name[:80], hint=hint)


def _fixed_field_errors(body: Mapping[str, Any]) -> Iterator[InvalidParameter]:
    for name, values in FIXED_FIELDS.items():
        value = body.get(name)
        if value is None or any(_is_same_value(value, each) for each in values):
            continue
        only = f" other than {values[0]!r}" if values else ""
        yield InvalidParameter(
            f"{name}{only} is not supported.",
            param=name,
            hint=_HINTS.get(name, "Omit it."),
        )


def _is_same_value(value: Any, other: Any) -> bool:
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _normalize_fields(values: dict[str, Any]) -> dict[str, Any]:
    """Rename OpenAI's fields to those of ChatRequest, and check them against each other."""
    max_tokens = values.pop("max_tokens", None)
    max_completion_tokens = values.pop("max_completion_tokens", None)
    if None not in (max_tokens, max_completion_tokens) and max_tokens != max_completion_tokens:
        raise InvalidParameter(
            "max_tokens and max_completion_tokens conflict.",
            param="max_tokens",
            hint="Send only max_completion_tokens.",
        )
    values["max_tokens"] = max_tokens if max_completion_tokens is None else max_completion_tokens
    values["include_usage"] = values.pop("stream_options", False)
    values["thinking"] = values.pop("reasoning_effort", None)
    values["parallel_calls"] = values.pop("parallel_tool_calls", None)
    choice: ToolChoice | None = values.get("tool_choice")
    names = [tool.name for tool in values.get("tools", ())]
    if choice is not None and choice.mode == "named" and choice.name not in names:
        raise InvalidParameter(
            f"tool_choice names {choice.name!r:.80}, which is not in tools.",
            param="tool_choice",
            hint=did_you_mean(choice.name, names),
        )
    if choice is not None and choice.mode == "required" and not names:
        raise InvalidParameter("tool_choice requires tools.", param="tool_choice")
    return values


# -- the fields --------------------------------------------------------------------------------


def _string_reader(name: str, max_length: int) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if isinstance(value, str) and 0 < len(value) <= max_length:
            return value
        raise InvalidParameter(
            f"{name} must be a string of 1 to {max_length} characters.", param=name
        )

    return read


def _boolean_reader(name: str) -> Callable[[Any], bool]:
    def read(value: Any) -> bool:
        if isinstance(value, bool):
            return value
        raise InvalidParameter(f"{name} must be true or false.", param=name)

    return read


def _token_count_reader(name: str) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if type(value) is int and 1 <= value <= MAX_TOKENS:
            return value
        expected = f"a whole number from 1 to {MAX_TOKENS:,}"
        raise InvalidParameter(f"{name} must be {expected} (got {value!r:.80}).", param=name)

    return read


def _read_temperature(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 2:
        return float(value)
    raise InvalidParameter(
        f"temperature must be a number from 0 to 2 (got {value!r:.80}).", param="temperature"
    )


def _read_stop(value: Any) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value
    if isinstance(items, list):
        texts = [each for each in cast("list[object]", items) if isinstance(each, str) and each]
        if len(texts) == len(cast("list[object]", items)) <= MAX_STOPS and all(
            len(text) <= MAX_STOP_LENGTH for text in texts
        ):
            return tuple(texts)
    raise InvalidParameter(
        f"stop must be a non-empty string, or a list of at most {MAX_STOPS} of them.",
        param="stop",
    )


def _read_effort(value: Any) -> bool:
    if isinstance(value, str) and value in _THINKING_BY_EFFORT:
        return _THINKING_BY_EFFORT[value]
    raise InvalidParameter(
        f"reasoning_effort must be one of {', '.join(_THINKING_BY_EFFORT)}.",
        param="reasoning_effort",
    )


def _read_stream_options(value: Any) -> bool:
    match value:
        case {**members} if not members.keys() - {"include_usage", "include_obfuscation"}:
            return _boolean_reader("stream_options.include_usage")(
                members.get("include_usage", False)
            )
        case _:
            raise InvalidParameter(
                'stream_options must be an object like {"include_usage": true}.',
                param="stream_options",
            )


def _read_response_format(value: Any) -> Mapping[str, Any] | None:
    match value:
        case {"type": "text"}:
            return None
        case {"type": "json_object" | "json_schema"}:
            return value
        case _:
            raise InvalidParameter(
                "response_format must be an object whose type is text, json_object or json_schema.",
                param="response_format",
            )


_REQUIRED: Final = ("model", "messages")
_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "model": _string_reader("model", MAX_MODEL_LENGTH),
    "messages": read_messages,
    "user": _string_reader("user", MAX_USER_LENGTH),
    "stream": _boolean_reader("stream"),
    "stream_options": _read_stream_options,
    "max_tokens": _token_count_reader("max_tokens"),
    "max_completion_tokens": _token_count_reader("max_completion_tokens"),
    "temperature": _read_temperature,
    "stop": _read_stop,
    "reasoning_effort": _read_effort,
    "tools": read_tools,
    "tool_choice": read_tool_choice,
    "parallel_tool_calls": _boolean_reader("parallel_tool_calls"),
    "response_format": _read_response_format,
}
