"""The messages of a request: who said what, and what an agent's run makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from dodona.core.errors import BadRequest, DodonaError
from dodona.core.messages import (
    AssistantText,
    Message,
    SystemText,
    ToolCall,
    ToolResult,
    UserText,
)
from dodona.gateway.http.openai_errors import InvalidParameter

MAX_MESSAGES: Final = 2_000
PARAGRAPH_BREAK: Final = "\n\n"
_ROLES: Final = ("system", "developer", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message. `calls` are an assistant's, `call_id` is what a tool's message answers."""

    role: str
    text: str
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class ChatHistory:
    """Messages as an agent takes them: what to heed, what was said before, and what is asked.

    Of an exchange either side may be empty: some clients begin with a greeting.
    """

    instructions: str
    exchanges: tuple[tuple[str, str], ...]
    question: str

    @classmethod
    def from_messages(cls, messages: Sequence[ChatMessage]) -> ChatHistory:
        told = [said.text for said in messages if said.role in ("system", "developer")]
        spoken = [said for said in messages if said.role in ("user", "assistant")]
        asked = _after_last_answer(spoken)
        question = PARAGRAPH_BREAK.join(said.text for said in asked)
        if not question.strip():
            raise InvalidParameter(
                "there is no question.",
                param="messages",
                hint="The last message must be the user's, and say something.",
            )
        before = spoken[: len(spoken) - len(asked)]
        return cls(
            PARAGRAPH_BREAK.join(filter(None, told)), tuple(_pair_exchanges(before)), question
        )


def _after_last_answer(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    found: list[ChatMessage] = []
    for said in reversed(messages):
        if said.role == "assistant":
            break
        found.insert(0, said)
    return found


def _pair_exchanges(messages: Iterable[ChatMessage]) -> Iterator[tuple[str, str]]:
    """Questions in a row are one, and so are answers."""
    asked: list[str] = []
    answered: list[str] = []
    for said in messages:
        if said.role == "user" and answered:
            yield PARAGRAPH_BREAK.join(asked), PARAGRAPH_BREAK.join(answered)
            asked, answered = [], []
        (asked if said.role == "user" else answered).append(said.text)
    if asked or answered:
        yield PARAGRAPH_BREAK.join(asked), PARAGRAPH_BREAK.join(answered)


def to_model_messages(messages: Sequence[ChatMessage]) -> Iterator[Message]:
    """The same for a model that is asked directly; a result must have its call."""
    names: dict[str, str] = {}
    for place, said in enumerate(messages):
        match said.role:
            case "system" | "developer":
                yield SystemText(said.text)
            case "user":
                yield UserText(said.text)
            case "assistant":
                names |= {call.id: call.name for call in said.calls}
                yield AssistantText(said.text, said.calls)
            case _:
                if said.call_id not in names:
                    raise InvalidParameter(
                        f"no call has the id {said.call_id!r:.80}.",
                        param=f"messages[{place}].tool_call_id",
                        hint="A tool's message follows the assistant's message that called it.",
                    )
                yield ToolResult(said.call_id, names[said.call_id], said.text)


# -- reading -----------------------------------------------------------------------------------


def read_messages(value: Any) -> tuple[ChatMessage, ...]:
    listed = cast("list[object]", value) if isinstance(value, list) else []
    if not 0 < len(listed) <= MAX_MESSAGES:
        raise InvalidParameter(
            f"messages must be a list of 1 to {MAX_MESSAGES:,} messages.", param="messages"
        )
    wrong: list[DodonaError] = []
    found: list[ChatMessage] = []
    for place, each in enumerate(listed):
        try:
            found.append(_read_message(each, f"messages[{place}]"))
        except InvalidParameter as mistake:
            wrong.append(mistake)
    if wrong:
        raise BadRequest.combine(wrong[:20])
    return tuple(found)


def _read_message(value: object, param: str) -> ChatMessage:
    if not isinstance(value, dict):
        raise InvalidParameter("a message must be an object.", param=param)
    message = cast("dict[str, Any]", value)
    role = message.get("role")
    if role not in _ROLES:
        raise InvalidParameter(f"role must be one of {', '.join(_ROLES)}.", param=f"{param}.role")
    calls = _read_calls(message, param) if role == "assistant" else ()
    text = _read_content(
        message.get("content"), f"{param}.content", may_be_none=role == "assistant"
    )
    if role == "assistant" and not text and isinstance(message.get("refusal"), str):
        text = message["refusal"]
    return ChatMessage(role, text, calls, _read_call_id(message, param) if role == "tool" else "")


def _read_content(value: object, param: str, *, may_be_none: bool) -> str:
    """The text; parts of text are joined, others are refused."""
    match value:
        case str():
            return value
        case None if may_be_none:
            return ""
        case list():
            parts = cast("list[object]", value)
            return "".join(_read_part(each, f"{param}[{n}]") for n, each in enumerate(parts))
        case _:
            raise InvalidParameter("content must be a text, or a list of parts.", param=param)


def _read_part(value: object, param: str) -> str:
    match value:
        case {"type": "text", "text": str() as text}:
            return text
        case {"type": "refusal", "refusal": str() as text}:
            return text
        case {"type": str() as kind}:
            raise InvalidParameter(
                f"a part of type {kind!r:.40} cannot be read here.",
                param=param,
                hint="Send text: agents see neither images, nor audio, nor files.",
            )
        case _:
            raise InvalidParameter(
                'a part must look like {"type": "text", "text": …}.', param=param
            )


def _read_calls(message: Mapping[str, Any], param: str) -> tuple[ToolCall, ...]:
    if message.get("function_call") is not None:
        raise InvalidParameter(
            "function_call is not possible here.",
            param=f"{param}.function_call",
            hint="Use tool_calls.",
        )
    listed = message.get("tool_calls")
    if listed is None:
        return ()
    if not isinstance(listed, list):
        raise InvalidParameter("tool_calls must be a list.", param=f"{param}.tool_calls")
    places = enumerate(cast("list[object]", listed))
    return tuple(_read_call(each, f"{param}.tool_calls[{place}]") for place, each in places)


def _read_call(value: object, param: str) -> ToolCall:
    match value:
        case {"id": str() as id_, "function": {"name": str() as name, "arguments": str() as text}}:
            return ToolCall(id_, name, text)
        case _:
            raise InvalidParameter(
                'a call must look like {"id": …, "type": "function", "function": '
                '{"name": …, "arguments": "{}"}}.',
                param=param,
            )


def _read_call_id(message: Mapping[str, Any], param: str) -> str:
    match message.get("tool_call_id"):
        case str() as id_ if id_:
            return id_
        case _:
            raise InvalidParameter(
                "a tool's message needs the id of its call.", param=f"{param}.tool_call_id"
            )
