"""A request for a chat completion, read: all of it is understood, or it is refused.

Fields that OpenAI has and that change nothing of an answer here are taken and left alone; those
that would change one, and cannot here, are refused unless they say what is so anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from dodona.core.errors import BadRequest, DodonaError, did_you_mean
from dodona.core.messages import ToolSpec
from dodona.core.ports.model import ToolChoice
from dodona.gateway.http.openai_errors import WrongParameter
from dodona.gateway.v1.messages import ChatMessage, read_messages
from dodona.gateway.v1.tools import read_choice, read_tools

MOST_TOKENS: Final = 1_000_000
MOST_STOPS: Final = 4
LONGEST_STOP: Final = 1_000
LONGEST_USER: Final = 200
LONGEST_MODEL: Final = 300

# They say something about the request to whoever serves it, nothing about the answer.
WITHOUT_EFFECT: Final = (
    *("metadata", "prediction", "prompt_cache_key", "prompt_cache_retention", "safety_identifier"),
    *("seed", "service_tier", "store"),
)
# By what they may say: anything else would change the answer, and cannot here.
FIXED: Final[Mapping[str, tuple[Any, ...]]] = {
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
_THINKING: Final = {
    **dict.fromkeys(("none", "minimal"), False),
    **dict.fromkeys(("low", "medium", "high", "xhigh"), True),
}
_HINTS: Final = {
    "functions": "Use tools.",
    "function_call": "Use tool_choice.",
    "n": "Ask as often as you want answers.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """`user` names a session that goes on by itself. `thinking` is None when nobody asked."""

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
    def is_relayed(self) -> bool:
        """Does the client bring tools of its own, or what they returned?"""
        return bool(self.tools) or any(said.calls or said.role == "tool" for said in self.messages)

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> ChatRequest:
        """From the body; all that is wrong with it is told at once."""
        wrong: list[DodonaError] = [*_unknown(given), *_unchangeable(given)]
        values: dict[str, Any] = {}
        for name, read in _READERS.items():
            try:
                if given.get(name) is not None or name in _REQUIRED:
                    values[name] = read(given.get(name))
            except BadRequest as mistake:
                wrong.extend(mistake.problems())
        if wrong:
            raise BadRequest.gather(wrong)
        return cls(**_taken(values))


def _unknown(given: Mapping[str, Any]) -> Iterator[WrongParameter]:
    known = (*_READERS, *FIXED, *WITHOUT_EFFECT)
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known)
            yield WrongParameter(f"there is no field {name!r:.80}.", param=name[:80], hint=hint)


def _unchangeable(given: Mapping[str, Any]) -> Iterator[WrongParameter]:
    for name, values in FIXED.items():
        value = given.get(name)
        if value is None or any(_same(value, each) for each in values):
            continue
        only = f" other than {values[0]!r}" if values else ""
        yield WrongParameter(
            f"{name}{only} is not possible here.",
            param=name,
            hint=_HINTS.get(name, "Leave it out."),
        )


def _same(value: Any, other: Any) -> bool:
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _taken(values: dict[str, Any]) -> dict[str, Any]:
    """The fields under the names that they have here."""
    one, other = values.pop("max_tokens", None), values.pop("max_completion_tokens", None)
    if one is not None and other is not None and one != other:
        raise WrongParameter(
            "max_tokens and max_completion_tokens say two things.",
            param="max_tokens",
            hint="Send max_completion_tokens alone.",
        )
    values["max_tokens"] = one if other is None else other
    values["include_usage"] = values.pop("stream_options", False)
    values["thinking"] = values.pop("reasoning_effort", None)
    values["parallel_calls"] = values.pop("parallel_tool_calls", None)
    choice: ToolChoice | None = values.get("tool_choice")
    names = [tool.name for tool in values.get("tools", ())]
    if choice is not None and choice.mode == "named" and choice.name not in names:
        raise WrongParameter(
            f"tool_choice names a tool {choice.name!r:.80} that is not offered.",
            param="tool_choice",
            hint=did_you_mean(choice.name, names),
        )
    if choice is not None and choice.mode == "required" and not names:
        raise WrongParameter("tool_choice needs tools.", param="tool_choice")
    return values


# -- the fields --------------------------------------------------------------------------------


def _text(name: str, longest: int) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if isinstance(value, str) and 0 < len(value) <= longest:
            return value
        raise WrongParameter(f"{name} must be a text of 1 to {longest} characters.", param=name)

    return read


def _boolean(name: str) -> Callable[[Any], bool]:
    def read(value: Any) -> bool:
        if isinstance(value, bool):
            return value
        raise WrongParameter(f"{name} must be true or false.", param=name)

    return read


def _tokens(name: str) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if type(value) is int and 1 <= value <= MOST_TOKENS:
            return value
        most = f"a whole number from 1 to {MOST_TOKENS:,}"
        raise WrongParameter(f"{name} must be {most} (got {value!r:.80}).", param=name)

    return read


def _temperature(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 2:
        return float(value)
    raise WrongParameter(
        f"temperature must be a number from 0 to 2 (got {value!r:.80}).", param="temperature"
    )


def _stop(value: Any) -> tuple[str, ...]:
    listed = [value] if isinstance(value, str) else value
    if isinstance(listed, list):
        texts = [each for each in cast("list[object]", listed) if isinstance(each, str) and each]
        if len(texts) == len(cast("list[object]", listed)) <= MOST_STOPS and all(
            len(text) <= LONGEST_STOP for text in texts
        ):
            return tuple(texts)
    raise WrongParameter(
        f"stop must be a text, or a list of at most {MOST_STOPS} texts, none of them empty.",
        param="stop",
    )


def _effort(value: Any) -> bool:
    if isinstance(value, str) and value in _THINKING:
        return _THINKING[value]
    raise WrongParameter(
        f"reasoning_effort must be one of {', '.join(_THINKING)}.", param="reasoning_effort"
    )


def _stream_options(value: Any) -> bool:
    match value:
        case {**members} if not members.keys() - {"include_usage", "include_obfuscation"}:
            return _boolean("stream_options.include_usage")(members.get("include_usage", False))
        case _:
            raise WrongParameter(
                'stream_options must be an object like {"include_usage": true}.',
                param="stream_options",
            )


def _response_format(value: Any) -> Mapping[str, Any] | None:
    match value:
        case {"type": "text"}:
            return None
        case {"type": "json_object" | "json_schema"}:
            return value
        case _:
            raise WrongParameter(
                "response_format must be an object whose type is text, json_object or json_schema.",
                param="response_format",
            )


_REQUIRED: Final = ("model", "messages")
_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "model": _text("model", LONGEST_MODEL),
    "messages": read_messages,
    "user": _text("user", LONGEST_USER),
    "stream": _boolean("stream"),
    "stream_options": _stream_options,
    "max_tokens": _tokens("max_tokens"),
    "max_completion_tokens": _tokens("max_completion_tokens"),
    "temperature": _temperature,
    "stop": _stop,
    "reasoning_effort": _effort,
    "tools": read_tools,
    "tool_choice": read_choice,
    "parallel_tool_calls": _boolean("parallel_tool_calls"),
    "response_format": _response_format,
}
