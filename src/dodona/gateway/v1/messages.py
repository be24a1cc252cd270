"""The messages of a chat completion request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta, Struct, field

from dodona.core.errors import InvalidField
from dodona.core.json_document import JsonDocument
from dodona.core.messages import (
    AssistantText,
    Message,
    SystemText,
    ToolCall,
    ToolResult,
    UserText,
)

MAX_MESSAGES: Final = 2_000
PARAGRAPH_BREAK: Final = "\n\n"

_CONTENT: Final = Meta(
    description="A string, or a list of text parts.",
    extra={"hint": "Send text: images, audio and files are not supported."},
)


class V1TextPart(Struct, tag_field="type", tag="text"):
    """A part of a text."""

    text: str


class V1RefusalPart(Struct, tag_field="type", tag="refusal"):
    """A part of a refusal."""

    text: str = field(name="refusal")


Content: TypeAlias = str | list[V1TextPart | V1RefusalPart]


class V1FunctionCall(JsonDocument):
    """The function to call. `arguments` is JSON text."""

    name: str
    arguments: str


class V1ToolCall(JsonDocument, kw_only=True):
    """A call of one of the client's tools."""

    id: str
    type: Literal["function"] | None = "function"
    function: V1FunctionCall


class V1SystemMessage(Struct, tag_field="role", tag="system"):
    """Instructions for the agent."""

    content: Annotated[Content, _CONTENT]


class V1DeveloperMessage(V1SystemMessage, tag="developer"):
    """Instructions for the agent: OpenAI's newer name for a system message."""


class V1UserMessage(Struct, tag_field="role", tag="user"):
    """A message of the user."""

    content: Annotated[Content, _CONTENT]


class V1AssistantMessage(Struct, tag_field="role", tag="assistant"):
    """An answer. It may call the client's tools."""

    content: Annotated[Content | None, _CONTENT] = None
    tool_calls: list[V1ToolCall] | None = None
    refusal: str | None = None
    function_call: Annotated[None, Meta(extra={"hint": "Use tool_calls."})] = None


class V1ToolMessage(Struct, tag_field="role", tag="tool"):
    """The result of a tool call."""

    content: Annotated[Content, _CONTENT]
    tool_call_id: Annotated[str, Meta(min_length=1, description="The id of the call.")]


V1Message: TypeAlias = (
    V1SystemMessage | V1DeveloperMessage | V1UserMessage | V1AssistantMessage | V1ToolMessage
)


def text_of(message: V1Message) -> str:
    """Return the text of a message; its parts are joined."""
    content = message.content or ""
    text = content if isinstance(content, str) else "".join(part.text for part in content)
    if isinstance(message, V1AssistantMessage):
        return text or message.refusal or ""
    return text


@dataclass(frozen=True, slots=True)
class ChatHistory:
    """Messages converted for an agent: instructions, earlier exchanges and the question.

    Either side of an exchange may be empty: some clients start with a greeting. With `is_joined`,
    the question consists of several messages: only the last one is what the user has just written.
    """

    instructions: str
    exchanges: tuple[tuple[str, str], ...]
    question: str
    is_joined: bool = False

    @classmethod
    def from_messages(cls, messages: Sequence[V1Message]) -> ChatHistory:
        """Split messages. Raises InvalidField without a question at the end."""
        instructions = [text_of(each) for each in messages if isinstance(each, V1SystemMessage)]
        dialogue = [
            each for each in messages if isinstance(each, V1UserMessage | V1AssistantMessage)
        ]
        answers = [n for n, each in enumerate(dialogue) if isinstance(each, V1AssistantMessage)]
        start = answers[-1] + 1 if answers else 0
        before, questions = dialogue[:start], dialogue[start:]
        question = PARAGRAPH_BREAK.join(text_of(each) for each in questions)
        if not question.strip():
            raise InvalidField(
                "there is no question.",
                field="messages",
                hint="The last message must have the role user and a text.",
            )
        return cls(
            PARAGRAPH_BREAK.join(filter(None, instructions)),
            tuple(_pair_exchanges(before)),
            question,
            is_joined=len(questions) > 1,
        )


def _pair_exchanges(messages: Iterable[V1Message]) -> Iterator[tuple[str, str]]:
    """Yield pairs of question and answer; consecutive messages of one role are joined."""
    questions: list[str] = []
    answers: list[str] = []
    for message in messages:
        is_question = isinstance(message, V1UserMessage)
        if is_question and answers:
            yield PARAGRAPH_BREAK.join(questions), PARAGRAPH_BREAK.join(answers)
            questions, answers = [], []
        (questions if is_question else answers).append(text_of(message))
    if questions or answers:
        yield PARAGRAPH_BREAK.join(questions), PARAGRAPH_BREAK.join(answers)


def to_model_messages(messages: Sequence[V1Message]) -> Iterator[Message]:
    """Yield the messages for a direct model call. A tool result must follow its call."""
    names: dict[str, str] = {}
    for index, message in enumerate(messages):
        text = text_of(message)
        match message:
            case V1SystemMessage():
                yield SystemText(text)
            case V1UserMessage():
                yield UserText(text)
            case V1AssistantMessage():
                calls = message.tool_calls or ()
                names |= {call.id: call.function.name for call in calls}
                yield AssistantText(
                    text,
                    tuple(
                        ToolCall(call.id, call.function.name, call.function.arguments)
                        for call in calls
                    ),
                )
            case V1ToolMessage(tool_call_id=id_):
                if id_ not in names:
                    raise InvalidField(
                        f"no tool call has the id {id_!r:.80}.",
                        field=f"messages[{index}].tool_call_id",
                        hint="A tool message must follow the assistant message with its call.",
                    )
                yield ToolResult(id_, names[id_], text)
