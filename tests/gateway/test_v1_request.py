"""Requests for chat completions are read whole; what would change their meaning is refused."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest

from dodona.core.errors import BadRequest, DodonaError, InvalidField
from dodona.core.json_document import parse_document, to_builtins
from dodona.core.messages import AssistantText, SystemText, ToolCall, ToolResult, UserText
from dodona.gateway.openapi import build_openapi
from dodona.gateway.v1.messages import ChatHistory, V1Message, to_model_messages
from dodona.gateway.v1.request import V1Function, V1Request, V1Tool

HELLO = {"role": "user", "content": "Hello"}
TOOL = {"type": "function", "function": {"name": "find"}}
CALL = {"id": "a", "type": "function", "function": {"name": "find", "arguments": "{}"}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:,"}}


def read(**more: Any) -> V1Request:
    return parse_document(V1Request, {"model": "oracle", "messages": [HELLO], **more})


def test_all_of_a_request_is_read() -> None:
    """Under one name each, whatever OpenAI has called it over time."""
    asked = read(
        user="ada",
        stream=True,
        stream_options={"include_usage": True, "include_obfuscation": False},
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
    assert (asked.max_tokens, asked.temperature, asked.stop_texts) == (7, 1.0, ("a", "b"))
    assert (asked.thinking, asked.parallel_tool_calls) == (True, False)
    assert [tool.function.name for tool in asked.tools] == ["find"]
    assert asked.tool_choice == V1Tool(V1Function("find"))
    assert to_builtins(asked.response_format) == {"type": "json_object"}
    assert asked.is_passthrough


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("stop", "a", ("a",)),
        ("stop", [], ()),
        ("stop", None, ()),
        ("thinking", "none", False),
        ("thinking", "minimal", False),
        ("thinking", "xhigh", True),
        ("thinking", None, None),
    ],
)
def test_short_forms_mean_the_same(name: str, value: Any, expected: Any) -> None:
    """One stop text is a list of one, and efforts are thinking or none."""
    if name == "stop":
        assert read(stop=value).stop_texts == expected
    else:
        assert read(reasoning_effort=value).thinking is expected


def test_max_tokens_may_be_given_twice() -> None:
    """Under the old and the new name, if they agree."""
    assert read(max_tokens=7, max_completion_tokens=7).max_tokens == 7
    assert read(max_tokens=7).max_tokens == 7


IGNORED_FIELDS = (
    *("metadata", "prediction", "prompt_cache_key", "prompt_cache_retention", "safety_identifier"),
    *("seed", "service_tier", "store"),
)
FIXED_FIELDS: dict[str, Any] = {
    "n": 1,
    "top_p": 1,
    "frequency_penalty": 0,
    "presence_penalty": 0.0,
    "logit_bias": {},
    "logprobs": False,
    "top_logprobs": 0,
    "modalities": ["text"],
    "verbosity": "medium",
    "audio": None,
    "web_search_options": None,
    "functions": None,
    "function_call": None,
}


def test_what_changes_nothing_is_taken() -> None:
    """Fields without effect whatever they say; null is as if a field were not there."""
    read(**{name: {"any": ["thing"]} for name in IGNORED_FIELDS})
    read(**FIXED_FIELDS)
    nothing = dict.fromkeys((*FIXED_FIELDS, "user", "stream", "stop", "tools", "stream_options"))
    assert read(**nothing) == read()
    assert read(response_format={"type": "text"}) == read()
    assert not read().is_passthrough


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"model": None}, "model", "model must be a string of 1 to 300 characters (got null)."),
    ({"messages": []}, "messages", "messages must be a list of 1 to 2,000 objects."),
    (
        {"messages": "Hello"},
        "messages",
        "messages must be a list of 1 to 2,000 objects (got 'Hello').",
    ),
    ({"messages": ["Hello"]}, "messages[0]", "messages[0] must be an object (got 'Hello')."),
    (
        {"messages": [HELLO, {"role": "oracle", "content": ""}]},
        "messages[1].role",
        "messages[1]: role must be system, developer, user, assistant or tool (got 'oracle').",
    ),
    ({"messages": [{"role": "user"}]}, "messages[0].content", "messages[0]: content is required."),
    (
        {"messages": [{"role": "user", "content": None}]},
        "messages[0].content",
        "messages[0]: content must be a string or a list of objects (got null).",
    ),
    (
        {"messages": [{"role": "user", "content": [IMAGE]}]},
        "messages[0].content[0].type",
        "messages[0]: content[0]: type must be text or refusal (got 'image_url').",
    ),
    (
        {"messages": [{"role": "tool", "content": "x"}]},
        "messages[0].tool_call_id",
        "messages[0]: tool_call_id is required.",
    ),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "a"}]}]},
        "messages[0].tool_calls[0].function",
        "messages[0]: tool_calls[0]: function is required.",
    ),
    (
        {"messages": [{"role": "assistant", "function_call": {"name": "find"}}]},
        "messages[0].function_call",
        "messages[0]: function_call is not supported.",
    ),
    ({"temprature": 1}, "temprature", "there is no field 'temprature'."),
    ({"n": 2}, "n", "n must be 1 (got 2)."),
    ({"n": True}, "n", "n must be 1 (got true)."),
    ({"top_p": 0.5}, "top_p", "top_p must be 1 (got 0.5)."),
    ({"logprobs": True}, "logprobs", "logprobs must be false."),
    ({"logit_bias": {"5": 1}}, "logit_bias", "logit_bias must be an empty object, or null."),
    ({"functions": []}, "functions", "functions is not supported."),
    ({"audio": {}}, "audio", "audio is not supported."),
    ({"stream": "yes"}, "stream", "stream must be true or false (got 'yes')."),
    (
        {"stream_options": {"usage": True}},
        "stream_options.usage",
        "stream_options: there is no field 'usage'.",
    ),
    (
        {"max_tokens": 0},
        "max_tokens",
        "max_tokens must be a whole number from 1 to 1,000,000, or null (got 0).",
    ),
    (
        {"max_tokens": 1, "max_completion_tokens": 2},
        "max_tokens",
        "max_tokens and max_completion_tokens conflict.",
    ),
    (
        {"temperature": 3},
        "temperature",
        "temperature must be a number from 0 to 2, or null (got 3).",
    ),
    (
        {"stop": ["a"] * 5},
        "stop",
        "stop must be a string of 1 to 1,000 characters or a list of at most 4 strings, or null.",
    ),
    (
        {"stop": [""]},
        "stop",
        "stop must be a string of 1 to 1,000 characters or a list of at most 4 strings, or null.",
    ),
    ({"user": ""}, "user", "user must be a string of 1 to 200 characters, or null (got '')."),
    ({"tools": {}}, "tools", "tools must be a list of at most 128 objects."),
    ({"tools": [TOOL, TOOL]}, "tools[1]", "two tools are named 'find'."),
    (
        {"tools": [{"type": "web_search"}]},
        "tools[0].type",
        "tools[0]: type must be function (got 'web_search').",
    ),
    (
        {"tools": [{"type": "function", "function": {"name": "a b"}}]},
        "tools[0].function.name",
        r"tools[0]: function: name must be a string that matches ^[a-zA-Z0-9_-]{1,64}$(?!\n) "
        "(got 'a b').",
    ),
    (
        {"tools": [{"type": "function", "function": {"name": "a\n"}}]},
        "tools[0].function.name",
        r"tools[0]: function: name must be a string that matches ^[a-zA-Z0-9_-]{1,64}$(?!\n) "
        r"(got 'a\n').",
    ),
    ({"tool_choice": "required"}, "tool_choice", "tool_choice requires tools."),
    (
        {"tool_choice": "always"},
        "tool_choice",
        "tool_choice must be auto, none or required or an object, or null (got 'always').",
    ),
    (
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "fnd"}}},
        "tool_choice",
        "tool_choice names 'fnd', which is not in tools.",
    ),
    (
        {"response_format": {"type": "xml"}},
        "response_format.type",
        "response_format: type must be json_object, json_schema or text (got 'xml').",
    ),
]


@pytest.mark.parametrize(("more", "param", "message"), WRONG)
def test_what_is_wrong_is_told_with_its_place(
    more: dict[str, Any], param: str, message: str
) -> None:
    with pytest.raises(BadRequest) as raised:
        read(**more)
    (problem,) = raised.value.problems()
    assert isinstance(problem, InvalidField)
    assert (problem.field, problem.message) == (param, message)


VALIDATOR = jsonschema_rs.Draft202012Validator(
    {"$ref": "#/components/schemas/V1Request", "components": build_openapi()["components"]}
)
# What a schema cannot say: fields that contradict each other, and `logprobs`.
BETWEEN_FIELDS = (
    *("max_tokens and max_completion_tokens", "logprobs", "two tools"),
    *("tool_choice requires", "tool_choice names"),
)


@pytest.mark.parametrize(("more", "_param", "message"), WRONG)
def test_the_schema_refuses_the_same(more: dict[str, Any], _param: str, message: str) -> None:
    """As far as one field is concerned."""
    body = {"model": "oracle", "messages": [HELLO], **more}
    assert VALIDATOR.is_valid(body) is message.startswith(BETWEEN_FIELDS)


def test_the_schema_allows_the_same() -> None:
    for more in (
        {name: {"any": ["thing"]} for name in IGNORED_FIELDS},
        FIXED_FIELDS,
        dict.fromkeys((*IGNORED_FIELDS, *FIXED_FIELDS, "user", "stream", "stop", "tools")),
        {"messages": [HELLO, {"role": "assistant", "content": None, "tool_calls": [CALL]}]},
        {"tools": [TOOL], "tool_choice": "required", "stop": "a", "temperature": 1},
    ):
        VALIDATOR.validate({"model": "oracle", "messages": [HELLO], **more})
        read(**more)


def test_a_problem_has_the_hint_of_its_field() -> None:
    """Also a problem in a part of the field."""
    for more, hint in (
        ({"n": 2}, "Send one request per answer."),
        (
            {"messages": [{"role": "user", "content": [IMAGE]}]},
            "Send text: images, audio and files are not supported.",
        ),
    ):
        with pytest.raises(InvalidField) as raised:
            read(**more)
        assert raised.value.hint == hint


def test_at_most_twenty_mistakes_are_told() -> None:
    with pytest.raises(DodonaError) as raised:
        read(messages=["Hello"] * 2_000)
    assert len(raised.value.problems()) == 20


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(DodonaError) as raised:
        parse_document(V1Request, {"n": 2, "temprature": 1, "messages": ["a", "b"]})
    assert len(raised.value.problems()) == 5


def said(*pairs: tuple[str, str]) -> list[V1Message]:
    return read(messages=[{"role": role, "content": text} for role, text in pairs]).messages


DIALOGUES: dict[str, tuple[list[V1Message], ChatHistory]] = {
    "one question": (said(("user", "a")), ChatHistory("", (), "a")),
    "questions in a row": (
        said(("user", "a"), ("user", "b")),
        ChatHistory("", (), "a\n\nb", is_joined=True),
    ),
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
def test_there_must_be_a_question(messages: list[V1Message]) -> None:
    with pytest.raises(InvalidField, match="there is no question"):
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
    with pytest.raises(InvalidField, match="no tool call has the id 'b'"):
        list(to_model_messages(stray.messages))
