"""The messages of a chat completion request."""

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
    """One message. Assistants have `calls`; a tool message has the `call_id` it responds to."""

    role: str
    text: str
    calls: tuple[ToolCall, ...] = ()
    call_id: str = ""


@dataclass(frozen=True, slots=True)
class ChatHistory:
    """Messages converted for an agent: instructions, earlier exchanges and the question.

    Either side of an exchange may be empty: some clients start with a greeting.
    """

    instructions: str
    exchanges: tuple[tuple[str, str], ...]
    question: str

    @classmethod
    def from_messages(cls, messages: Sequence[ChatMessage]) -> ChatHistory:
        """Split messages. Raises InvalidParameter without a question at the end."""
        instructions = [each.text for each in messages if each.role in ("system", "developer")]
        dialogue = [each for each in messages if each.role in ("user", "assistant")]
        questions = _after_last_answer(dialogue)
        question = PARAGRAPH_BREAK.join(each.text for each in questions)
        if not question.strip():
            raise InvalidParameter(
                "there is no question.",
                param="messages",
                hint="The last message must have the role user and a text.",
            )
        before = dialogue[: len(dialogue) - len(questions)]
        return cls(
            PARAGRAPH_BREAK.join(filter(None, instructions)),
            tuple(_pair_exchanges(before)),
            question,
        )


def _after_last_answer(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    trailing: list[ChatMessage] = []
    for message in reversed(messages):
        if message.role == "assistant":
            break
        trailing.insert(0, message)
    return trailing


def _pair_exchanges(messages: Iterable[ChatMessage]) -> Iterator[tuple[str, str]]:
    """Yield pairs of question and answer; consecutive messages of one role are joined."""
    questions: list[str] = []
    answers: list[str] = []
    for message in messages:
        if message.role == "user" and answers:
            yield PARAGRAPH_BREAK.join(questions), PARAGRAPH_BREAK.join(answers)
            questions, answers = [], []
        (questions if message.role == "user" else answers).append(message.text)
    if questions or answers:
        yield PARAGRAPH_BREAK.join(questions), PARAGRAPH_BREAK.join(answers)


def to_model_messages(messages: Sequence[ChatMessage]) -> Iterator[Message]:
    """Yield the messages for a direct model call. A tool result must follow its call."""
    names: dict[str, str] = {}
    for index, message in enumerate(messages):
        match message.role:
            case "system" | "developer":
                yield SystemText(message.text)
            case "user":
                yield UserText(message.text)
            case "assistant":
                names |= {call.id: call.name for call in message.calls}
                yield AssistantText(message.text, message.calls)
            case _:
                if message.call_id not in names:
                    raise InvalidParameter(
                        f"no tool call has the id {message.call_id!r:.80}.",
                        param=f"messages[{index}].tool_call_id",
                        hint="A tool message must follow the assistant message with its call.",
                    )
                yield ToolResult(message.call_id, names[message.call_id], message.text)


# -- reading -----------------------------------------------------------------------------------


def read_messages(value: Any) -> tuple[ChatMessage, ...]:
    """Parse `messages`. Reports up to twenty problems together."""
    items = cast("list[object]", value) if isinstance(value, list) else []
    if not 0 < len(items) <= MAX_MESSAGES:
        raise InvalidParameter(
            f"messages must be a list of 1 to {MAX_MESSAGES:,} messages.", param="messages"
        )
    errors: list[DodonaError] = []
    messages: list[ChatMessage] = []
    for index, item in enumerate(items):
        try:
            messages.append(_read_message(item, f"messages[{index}]"))
        except InvalidParameter as error:
            errors.append(error)
    if errors:
        raise BadRequest.combine(errors[:20])
    return tuple(messages)


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
    """Return the text. Text parts are joined; other parts are refused."""
    match value:
        case str():
            return value
        case None if may_be_none:
            return ""
        case list():
            parts = cast("list[object]", value)
            return "".join(_read_part(each, f"{param}[{n}]") for n, each in enumerate(parts))
        case _:
            raise InvalidParameter("content must be a string or a list of parts.", param=param)


def _read_part(value: object, param: str) -> str:
    match value:
        case {"type": "text", "text": str() as text}:
            return text
        case {"type": "refusal", "refusal": str() as text}:
            return text
        case {"type": str() as kind}:
            raise InvalidParameter(
                f"parts of type {kind!r:.40} are not supported.",
                param=param,
                hint="Send text: images, audio and files are not supported.",
            )
        case _:
            raise InvalidParameter(
                'a part must look like {"type": "text", "text": …}.', param=param
            )


def _read_calls(message: Mapping[str, Any], param: str) -> tuple[ToolCall, ...]:
    if message.get("function_call") is not None:
        raise InvalidParameter(
            "function_call is not supported.",
            param=f"{param}.function_call",
            hint="Use tool_calls.",
        )
    items = message.get("tool_calls")
    if items is None:
        return ()
    if not isinstance(items, list):
        raise InvalidParameter("tool_calls must be a list.", param=f"{param}.tool_calls")
    indexed = enumerate(cast("list[object]", items))
    return tuple(_read_call(item, f"{param}.tool_calls[{index}]") for index, item in indexed)


def _read_call(value: object, param: str) -> ToolCall:
    match value:
        case {"id": str() as id_, "function": {"name": str() as name, "arguments": str() as text}}:
            return ToolCall(id_, name, text)
        case _:
            raise InvalidParameter(
                'a tool call must look like {"id": …, "type": "function", "function": '
                '{"name": …, "arguments": "{}"}}.',
                param=param,
            )


def _read_call_id(message: Mapping[str, Any], param: str) -> str:
    match message.get("tool_call_id"):
        case str() as id_ if id_:
            return id_
        case _:
            raise InvalidParameter(
                "a tool message needs the id of its call.", param=f"{param}.tool_call_id"
            )
