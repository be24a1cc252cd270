"""Requests for chat completions are read whole; what would change their meaning is refused."""

from __future__ import annotations

from typing import Any

import pytest

from dodona.core.errors import BadRequest, DodonaError
from dodona.core.messages import AssistantText, SystemText, ToolCall, ToolResult, UserText
from dodona.core.ports.model import ToolChoice
from dodona.gateway.http.openai_errors import InvalidParameter
from dodona.gateway.v1.messages import ChatHistory, ChatMessage, to_model_messages
from dodona.gateway.v1.request import FIXED_FIELDS, IGNORED_FIELDS, ChatRequest

HELLO = {"role": "user", "content": "Hello"}
TOOL = {"type": "function", "function": {"name": "find"}}
CALL = {"id": "a", "type": "function", "function": {"name": "find", "arguments": "{}"}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:,"}}


def read(**more: Any) -> ChatRequest:
    return ChatRequest.parse({"model": "oracle", "messages": [HELLO], **more})


def test_all_of_a_request_is_read() -> None:
    """Under one name each, whatever OpenAI has called it over time."""
    asked = read(
        user="ada",
        stream=True,
        stream_options={"include_usage": True, "include_obfuscation": False},
        max_tokens=7,
        max_completion_tokens=7,
        temperature=1,
        stop=["a", "b"],
        reasoning_effort="high",
        tools=[TOOL],
        tool_choice={"type": "function", "function": {"name": "find"}},
        parallel_tool_calls=False,
        response_format={"type": "json_object"},
    )
    assert (asked.model, asked.user, asked.stream, asked.include_usage) == (
        *("oracle", "ada", True, True),
    )
    assert (asked.max_tokens, asked.temperature, asked.stop) == (7, 1.0, ("a", "b"))
    assert (asked.thinking, asked.parallel_calls) == (True, False)
    assert [tool.name for tool in asked.tools] == ["find"]
    assert asked.tool_choice == ToolChoice("named", "find")
    assert asked.response_format == {"type": "json_object"}
    assert asked.is_passthrough


def test_what_changes_nothing_is_taken() -> None:
    """Fields without effect whatever they say; null is as if a field were not there."""
    anything = {name: {"any": ["thing"]} for name in IGNORED_FIELDS}
    nothing = dict.fromkeys((*FIXED_FIELDS, "user", "stream", "stop", "tools", "stream_options"))
    usual = {name: values[0] for name, values in FIXED_FIELDS.items() if values}
    assert read(**anything) == read(**nothing) == read(**usual) == read()
    assert read(response_format={"type": "text"}) == read()
    assert not read().is_passthrough


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"model": None}, "model", "model must be a string of 1 to 300 characters."),
    ({"messages": []}, "messages", "messages must be a list of 1 to 2,000 messages."),
    ({"messages": "Hello"}, "messages", "messages must be a list of 1 to 2,000 messages."),
    ({"messages": ["Hello"]}, "messages[0]", "a message must be an object."),
    (
        {"messages": [HELLO, {"role": "oracle", "content": ""}]},
        "messages[1].role",
        "role must be one of system, developer, user, assistant, tool.",
    ),
    (
        {"messages": [{"role": "user"}]},
        "messages[0].content",
        "content must be a string or a list of parts.",
    ),
    (
        {"messages": [{"role": "user", "content": [IMAGE]}]},
        "messages[0].content[0]",
        "parts of type 'image_url' are not supported.",
    ),
    (
        {"messages": [{"role": "tool", "content": "x"}]},
        "messages[0].tool_call_id",
        "a tool message needs the id of its call.",
    ),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "a"}]}]},
        "messages[0].tool_calls[0]",
        'a tool call must look like {"id": …, "type": "function", "function": '
        '{"name": …, "arguments": "{}"}}.',
    ),
    ({"temprature": 1}, "temprature", "there is no field 'temprature'."),
    ({"n": 2}, "n", "n other than 1 is not supported."),
    ({"n": True}, "n", "n other than 1 is not supported."),
    ({"top_p": 0.5}, "top_p", "top_p other than 1 is not supported."),
    ({"logprobs": True}, "logprobs", "logprobs other than False is not supported."),
    ({"functions": []}, "functions", "functions is not supported."),
    ({"audio": {}}, "audio", "audio is not supported."),
    ({"stream": "yes"}, "stream", "stream must be true or false."),
    (
        {"stream_options": {"usage": True}},
        "stream_options",
        'stream_options must be an object like {"include_usage": true}.',
    ),
    (
        {"max_tokens": 0},
        "max_tokens",
        "max_tokens must be a whole number from 1 to 1,000,000 (got 0).",
    ),
    (
        {"max_tokens": 1, "max_completion_tokens": 2},
        "max_tokens",
        "max_tokens and max_completion_tokens conflict.",
    ),
    ({"temperature": 3}, "temperature", "temperature must be a number from 0 to 2 (got 3)."),
    (
        {"stop": ["a"] * 5},
        "stop",
        "stop must be a non-empty string, or a list of at most 4 of them.",
    ),
    (
        {"stop": [""]},
        "stop",
        "stop must be a non-empty string, or a list of at most 4 of them.",
    ),
    ({"user": ""}, "user", "user must be a string of 1 to 200 characters."),
    ({"tools": {}}, "tools", "tools must be a list of at most 128 tools."),
    ({"tools": [TOOL, TOOL]}, "tools[1]", "two tools are named 'find'."),
    (
        {"tools": [{"type": "web_search"}]},
        "tools[0]",
        "tools of type 'web_search' are not supported.",
    ),
    (
        {"tools": [{"type": "function", "function": {"name": "a b"}}]},
        "tools[0].function.name",
        "a tool name must consist of 1 to 64 of the characters a-z, A-Z, 0-9, _ and - (got 'a b').",
    ),
    ({"tool_choice": "required"}, "tool_choice", "tool_choice requires tools."),
    (
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "fnd"}}},
        "tool_choice",
        "tool_choice names 'fnd', which is not in tools.",
    ),
    (
        {"response_format": {"type": "xml"}},
        "response_format",
        "response_format must be an object whose type is text, json_object or json_schema.",
    ),
]


@pytest.mark.parametrize(("more", "param", "message"), WRONG)
def test_what_is_wrong_is_told_with_its_place(
    more: dict[str, Any], param: str, message: str
) -> None:
    with pytest.raises(BadRequest) as raised:
        read(**more)
    (problem,) = raised.value.problems()
    assert isinstance(problem, InvalidParameter)
    assert (problem.param, problem.message) == (param, message)


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(DodonaError) as raised:
        ChatRequest.parse({"n": 2, "temprature": 1, "messages": ["a", "b"]})
    assert len(raised.value.problems()) == 5


def said(*pairs: tuple[str, str]) -> list[ChatMessage]:
    return [ChatMessage(role, text) for role, text in pairs]


DIALOGUES: dict[str, tuple[list[ChatMessage], ChatHistory]] = {
    "one question": (said(("user", "a")), ChatHistory("", (), "a")),
    "questions in a row": (said(("user", "a"), ("user", "b")), ChatHistory("", (), "a\n\nb")),
    "a history": (
        said(("user", "a"), ("assistant", "b"), ("user", "c")),
        ChatHistory("", (("a", "b"),), "c"),
    ),
    "a greeting": (
        said(("assistant", "hi"), ("user", "a"), ("assistant", "b"), ("user", "c")),
        ChatHistory("", (("", "hi"), ("a", "b")), "c"),
    ),
    "answers in a row": (
        said(("user", "a"), ("assistant", "b"), ("assistant", "c"), ("user", "d")),
        ChatHistory("", (("a", "b\n\nc"),), "d"),
    ),
    "instructions anywhere": (
        said(("system", "s"), ("user", "a"), ("assistant", "b"), ("developer", "d"), ("user", "c")),
        ChatHistory("s\n\nd", (("a", "b"),), "c"),
    ),
}


@pytest.mark.parametrize("name", DIALOGUES)
def test_messages_become_a_dialogue(name: str) -> None:
    """What follows the last answer is the question; what came before are exchanges."""
    messages, expected = DIALOGUES[name]
    assert ChatHistory.from_messages(messages) == expected


@pytest.mark.parametrize(
    "messages",
    [said(("system", "s")), said(("user", "a"), ("assistant", "b")), said(("user", " "))],
)
def test_there_must_be_a_question(messages: list[ChatMessage]) -> None:
    with pytest.raises(InvalidParameter, match="there is no question"):
        ChatHistory.from_messages(messages)


def test_a_model_reads_messages_in_their_order() -> None:
    """With calls and results; a result without a call is refused."""
    asked = read(
        messages=[
            {"role": "developer", "content": "s"},
            HELLO,
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "oak"}]},
        ]
    )
    assert asked.is_passthrough
    assert list(to_model_messages(asked.messages)) == [
        SystemText("s"),
        UserText("Hello"),
        AssistantText("", (ToolCall("a", "find", "{}"),)),
        ToolResult("a", "find", "oak"),
    ]
    stray = read(messages=[HELLO, {"role": "tool", "tool_call_id": "b", "content": "x"}])
    with pytest.raises(InvalidParameter, match="no tool call has the id 'b'"):
        list(to_model_messages(stray.messages))
