"""JSON documents: one struct parses, validates, encodes and describes."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import UNSET, Meta, UnsetType, field

from dodona.core.errors import BadRequest
from dodona.core.json_document import (
    JsonDocument,
    RequestDocument,
    Timestamp,
    build_schemas,
    check_document,
    parse_document,
    parse_value,
    to_builtins,
)


class Colour(Enum):
    GREEN = "green"
    BROWN = "brown"


class Leaf(RequestDocument):
    """A part of a tree."""

    size: int


class Bird(msgspec.Struct, tag_field="animal", tag="bird"):
    nest: int


class Squirrel(msgspec.Struct, tag_field="animal", tag="squirrel"):
    nuts: Annotated[list[Leaf] | str, Meta(extra={"hint": "Count them."})]


class Tree(RequestDocument, kw_only=True):
    """A tree."""

    name: Annotated[str, Meta(min_length=1, max_length=10, description="Its name.")]
    height: Annotated[int, Meta(ge=1, le=2_000)] = 10
    kind: Literal["oak", "elm"] = "oak"
    colour: Colour = Colour.GREEN
    tags: Annotated[list[str], Meta(max_length=2)] = field(default_factory=list[str])
    kinds: list[Literal["oak", "elm"]] = field(default_factory=list[Literal["oak", "elm"]])
    label: str | None = None
    head: str | UnsetType | None = UNSET
    leaf: Leaf | None = None
    leaves: list[Leaf] | None = None
    guests: list[Bird | Squirrel] | None = None
    share: Annotated[float, Meta(ge=0, le=1)] = 0.5
    roots: Annotated[float, Meta(ge=1, le=1)] = 1
    fruit: Annotated[None, Meta(extra={"hint": "Oaks have acorns."})] = None
    settings: dict[str, Any] = field(default_factory=dict[str, Any])


class Answer(JsonDocument, kw_only=True):
    """An answer.

    With more than one paragraph.
    """

    text: str = ""
    at: Timestamp
    call_id: str = field(name="call")
    agent: str | UnsetType = UNSET


@pytest.mark.parametrize(
    ("values", "problems"),
    [
        ({}, ["name is required."]),
        ({"name": ""}, ["name must be a string of 1 to 10 characters (got '')."]),
        ({"name": None}, ["name must be a string of 1 to 10 characters (got null)."]),
        (
            {"name": "x" * 41},
            ["name must be a string of 1 to 10 characters (got 41 characters)."],
        ),
        (
            {"name": "x", "height": 0},
            ["height must be a whole number from 1 to 2,000 (got 0)."],
        ),
        (
            {"name": "x", "height": True},
            ["height must be a whole number from 1 to 2,000 (got true)."],
        ),
        ({"name": "x", "kind": "ash"}, ["kind must be elm or oak (got 'ash')."]),
        ({"name": "x", "colour": "red"}, ["colour must be green or brown (got 'red')."]),
        ({"name": "x", "tags": "a"}, ["tags must be a list of at most 2 strings (got 'a')."]),
        ({"name": "x", "tags": ["a"] * 3}, ["tags must be a list of at most 2 strings."]),
        ({"name": "x", "kinds": ["ash"]}, ["kinds must be a list with any of elm, oak."]),
        ({"name": "x", "label": 1}, ["label must be a string, or null (got 1)."]),
        ({"name": "x", "head": 1}, ["head must be a string, or null (got 1)."]),
        ({"name": "x", "share": 2}, ["share must be a number from 0 to 1 (got 2)."]),
        ({"name": "x", "settings": []}, ["settings must be an object."]),
        (
            {"name": "x", "leaf": {"size": "big", "form": 1}},
            ["leaf: there is no field 'form'.", "leaf: size must be a whole number (got 'big')."],
        ),
        ({"name": "x", "leaves": [{"size": 1}, 5]}, ["leaves[1] must be an object (got 5)."]),
        (
            {"name": "x", "leaves": [{}, {"size": "big"}]},
            [
                "leaves[0]: size is required.",
                "leaves[1]: size must be a whole number (got 'big').",
            ],
        ),
        (
            {"name": "x", "guests": [{"nest": 1}]},
            ["guests[0]: animal must be bird or squirrel (got null)."],
        ),
        (
            {"name": "x", "guests": [{"animal": "bird", "wings": 2}]},
            ["guests[0]: nest is required."],
        ),
        (
            {"name": "x", "guests": [{"animal": "squirrel", "nuts": [{"size": ""}]}]},
            ["guests[0]: nuts[0]: size must be a whole number (got ''). Count them."],
        ),
        ({"name": "x", "roots": 2}, ["roots must be 1 (got 2)."]),
        ({"name": "x", "fruit": []}, ["fruit is not supported. Oaks have acorns."]),
        (
            {"nam": "x", "height": 0},
            [
                "there is no field 'nam'. Did you mean 'name'?",
                "name is required.",
                "height must be a whole number from 1 to 2,000 (got 0).",
            ],
        ),
    ],
)
def test_all_problems_are_reported_together(values: dict[str, Any], problems: list[str]) -> None:
    """Each names the field, the accepted values and the value that was sent."""
    with pytest.raises(BadRequest) as raised:
        parse_document(Tree, values)
    assert [str(each) for each in raised.value.problems()] == problems


def test_a_problem_has_the_path_of_its_field() -> None:
    """Programs find the invalid field without reading the text."""
    guests = [{"animal": "squirrel", "nuts": [{"size": 1}, {"size": ""}]}, {"animal": "cat"}]
    with pytest.raises(BadRequest) as raised:
        parse_document(Tree, {"height": 0, "trunk": 1, "guests": guests})
    assert [getattr(each, "field", None) for each in raised.value.problems()] == [
        *("trunk", "name", "height", "guests[0].nuts[1].size", "guests[1].animal"),
    ]


def test_at_most_twenty_problems_are_reported() -> None:
    """Of a list, too: an error must not be longer than the request."""
    with pytest.raises(BadRequest) as raised:
        parse_document(Tree, {"name": "x", "leaves": [{}] * 1_000})
    assert len(raised.value.problems()) == 20


def test_null_means_the_default_of_an_optional_field() -> None:
    """Unless null is a value of its own, as for `head`."""
    tree = parse_document(Tree, {"name": "x", "height": None, "tags": None, "head": None})
    assert (tree.height, tree.tags, tree.head) == (10, [], None)
    assert parse_document(Tree, {"name": "x"}).head is UNSET


def test_null_is_refused_where_it_could_mean_everything() -> None:
    """A field that may be left out has no default: null there is a mistake."""

    class Selection(RequestDocument):
        run_id: int | UnsetType = UNSET

    with pytest.raises(BadRequest, match=r"^run_id must be a whole number \(got null\)\.$"):
        parse_document(Selection, {"run_id": None})


def test_a_document_built_by_code_can_be_checked() -> None:
    """Structs do not validate their arguments by themselves."""
    check_document(Tree(name="x"))
    with pytest.raises(BadRequest, match=r"^height must be a whole number from 1 to 2,000 \(got 0"):
        check_document(Tree(name="x", height=0))


def test_a_single_value_is_checked_by_its_type() -> None:
    """As the parameters of HTTP and WebSocket requests are."""
    assert parse_value(Colour, "colour", "green") is Colour.GREEN
    with pytest.raises(BadRequest, match=r"^n must be a whole number of at least 1 \(got 0\)\.$"):
        parse_value(Annotated[int, Meta(ge=1, le=10**18)], "n", 0)


def test_timestamps_are_iso_8601_with_milliseconds() -> None:
    """In UTC; in memory they stay numbers."""
    answer = Answer(at=Timestamp(1.5), call_id="c1")
    assert to_builtins(answer) == {"text": "", "at": "1970-01-01T00:00:01.500Z", "call": "c1"}
    assert answer.at + 1 == 2.5
    assert Timestamp.or_none(None) is None


def test_the_schema_says_what_is_parsed() -> None:
    """Optional fields of a request accept null; a response always has all its fields."""
    references, schemas = build_schemas([Tree, Answer])
    assert references[0] == {"$ref": "#/components/schemas/Tree"}
    tree, answer = schemas["Tree"], schemas["Answer"]
    assert (tree["required"], tree["additionalProperties"]) == (["name"], False)
    assert tree["properties"]["height"] == {
        "default": 10,
        "anyOf": [{"type": "integer", "minimum": 1, "maximum": 2000}, {"type": "null"}],
    }
    assert answer["required"] == ["text", "at", "call"]
    assert answer["properties"]["at"] == {"type": "string", "format": "date-time"}
    assert answer["description"] == "An answer.\n\nWith more than one paragraph."
    assert "Leaf" in schemas


def test_a_type_without_a_schema_is_an_error() -> None:
    """A document with a type that JSON does not have must not reach the API."""

    class Wrong(JsonDocument):
        value: complex

    with pytest.raises(TypeError, match="complex"):
        build_schemas([Wrong])
    assert msgspec.json.encode(Answer(at=Timestamp(0), call_id="x"), enc_hook=str)
