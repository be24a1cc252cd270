from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dodona.core.errors import ConfigError, ToolRetry
from dodona.core.messages import ToolSpec
from dodona.tools.arguments import MAX_ARGUMENTS_CHARS, ArgumentReader

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "maxLength": 50},
        "limit": {"type": "integer", "minimum": 1, "default": 5},
        "order": {"enum": ["new", "old"]},
        "where": {"type": "object", "properties": {"deep": {"type": "boolean", "default": True}}},
    },
    "required": ["query"],
    "additionalProperties": False,
}
PARAMETERS = (
    'Parameters: query (string, required), limit (integer, default 5), order (one of "new", '
    '"old"), where (object).'
)


def reader(schema: dict[str, Any] = SCHEMA) -> ArgumentReader:
    return ArgumentReader(ToolSpec("find", "Finds.", schema))


def read(text: str, schema: dict[str, Any] = SCHEMA) -> dict[str, Any]:
    return reader(schema).read(text, project_id="ours")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"query": "a"}', {"query": "a", "limit": 5}),
        ('{"query": "a", "limit": 7.0}', {"query": "a", "limit": 7}),
        ('{"query": "a", "where": {}}', {"query": "a", "limit": 5, "where": {"deep": True}}),
        ('{"query": "\\ud83d\\ude00"}', {"query": "😀", "limit": 5}),
    ],
)
def test_arguments_are_filled_in(text: str, expected: dict[str, Any]) -> None:
    """Defaults of the schema, in objects too; a whole number is an int however it is written."""
    arguments = read(text)
    assert arguments == expected
    assert type(arguments["limit"]) is int


@pytest.mark.parametrize("text", ["", " \n"])
def test_nothing_is_an_empty_object(text: str) -> None:
    """As some models write it for a tool without parameters."""
    assert read(text, {"type": "object"}) == {}


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (
            '{"query": "a" "limit": 3}',
            "they are not JSON: Expecting ',' delimiter at line 1, column 15, "
            'near "{\\"query\\": \\"a\\" \\"limit\\": 3}".',
        ),
        (
            '{"query": "a',
            "they are not JSON: Unterminated string starting at at line 1, column 11, "
            'near "{\\"query\\": \\"a".',
        ),
        ('{"query": ', "they are not JSON: Expecting value at line 1, column 11, near the end."),
        ("[1]", "they must be a JSON object (got [1])."),
        ('{"query": NaN}', "they are not JSON: NaN is not a JSON number."),
        ('{"limit": 5}', "'query' is missing."),
        (
            '{"qery": "a"}',
            "there is no parameter 'qery'. Did you mean 'query'? 'query' is missing.",
        ),
        ('{"query": "a", "limit": 0}', "limit: 0 is less than the minimum of 1."),
        ('{"query": 7}', 'query: 7 is not of type "string".'),
        ('{"query": "a", "where": {"deep": 1}}', 'where.deep: 1 is not of type "boolean".'),
        (
            '{"query": "\\ud800"}',
            "they contain half of a surrogate pair, which is not a character.",
        ),
    ],
)
def test_a_wrong_call_is_told_so_that_the_next_is_right(text: str, mistake: str) -> None:
    """What is wrong, where, and which parameters there are."""
    with pytest.raises(ToolRetry) as caught:
        read(text)
    assert str(caught.value) == f"The arguments of find are invalid: {mistake} {PARAMETERS}"


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"query": ' + "1" * 10_000 + "}",
        '{"query": "' + "x" * MAX_ARGUMENTS_CHARS + '"}',
        json.dumps({"query": "x" * 1_000_000}),
        json.dumps({f"unknown{n}": 1 for n in range(10_000)}),
        json.dumps({"x" * 500_000: 1}),
        '{"query": 1e999}',
    ],
)
def test_huge_arguments_make_short_errors(text: str) -> None:
    """Whatever a model writes, what it reads back fits its window."""
    with pytest.raises(ToolRetry) as caught:
        read(text)
    assert len(str(caught.value)) < 2_500


@given(st.text(max_size=60) | st.recursive(st.none() | st.integers(), st.lists).map(json.dumps))
@pytest.mark.slow
def test_any_text_is_read_or_refused(text: str) -> None:
    """Nothing else is raised."""
    try:
        arguments = read(text)
    except ToolRetry as error:
        arguments = {"query": error.hint}
    assert isinstance(arguments["query"], str)


def test_the_project_is_ours_whatever_the_model_says() -> None:
    """It is not offered, and filled in; where the tool has no such parameter it is unknown."""
    scoped = {
        "type": "object",
        "properties": {"project_id": {"type": "string"}, "path": {"type": "string"}},
        "required": ["project_id", "path"],
    }
    assert reader(scoped).model_spec.parameters == {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
    }
    for text in ('{"path": "a"}', '{"path": "a", "project_id": "theirs"}'):
        assert read(text, scoped) == {"path": "a", "project_id": "ours"}
    with pytest.raises(ToolRetry, match=r"Parameters: path \(string, required\)\.$"):
        read("{}", scoped)
    with pytest.raises(ToolRetry, match="there is no parameter 'project_id'"):
        read('{"query": "a", "project_id": "theirs"}')


def test_a_default_is_a_new_value_each_time() -> None:
    """A tool that changes what it was given changes nothing for the next call."""
    listing = reader({"type": "object", "properties": {"tags": {"default": []}}})
    listing.read("{}", project_id="p")["tags"].append("x")
    assert listing.read("{}", project_id="p") == {"tags": []}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({}, "the parameters of tool 'find' are not an object. Its JSON Schema must have"),
        (
            {"type": "object", "properties": {"a": {"type": "strin"}}},
            "the parameters of tool 'find' are not a valid JSON Schema: properties.a.type: ",
        ),
        (
            {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/x"}}},
            "the parameters of tool 'find' are not a valid JSON Schema: "
            "Resource 'http://127.0.0.1:9/x' is",
        ),
        (
            {"type": "object", "properties": {"a": {"type": "integer", "default": "x"}}},
            "the default of 'a' of tool 'find' does not match its own schema: ",
        ),
    ],
)
def test_a_bad_schema_is_refused_at_once(schema: dict[str, Any], message: str) -> None:
    """When the tool is registered, not when it is called; nothing is fetched."""
    with pytest.raises(ConfigError) as caught:
        reader(schema)
    assert str(caught.value).startswith(message)
