"""Tools that are Python functions: their schema, how they are called, and what they return."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, TypedDict
from uuid import UUID

import annotated_types
import msgspec
import pydantic
import pytest
from msgspec import Meta

from dodona.core.errors import ExtensionError, ToolFailed, ToolRetry
from dodona.core.extensions import extensions_in, extensions_of
from dodona.core.messages import ToolCall
from dodona.core.ports.journal import Effect
from dodona.core.ports.tools import (
    SourceKind,
    SourceReference,
    ToolCallResult,
    ToolContext,
    ToolOutput,
)
from dodona.tools import blocking_calls
from dodona.tools.call import MAX_RESULT_CHARS, call_tool
from dodona.tools.functions import Context, Result, ToolDeclaration, tool
from dodona.tools.registry import FunctionTool, ToolRegistry

CONTEXT = ToolContext("ada", "oaks", "run-1/tools[0]", run_id=7)


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Room:
    """A room of the house."""

    name: str
    seats: int = 4


class Point(msgspec.Struct):
    x: int
    y: int = 0


class Options(TypedDict, total=False):
    quiet: bool


class Guest(pydantic.BaseModel):
    name: str = pydantic.Field(min_length=1)
    age: int = 0


class Folder(msgspec.Struct):
    """A folder with folders."""

    name: str
    folders: list[Folder] = []


class Branch(pydantic.BaseModel):
    branches: list[Branch] = []


def build(function: Callable[..., Any]) -> FunctionTool:
    """Build the tool that a function declares."""
    (declaration,) = extensions_of(function)
    assert isinstance(declaration, ToolDeclaration)
    return declaration.build()


async def call(
    function: Callable[..., Any], *, context: ToolContext = CONTEXT, **arguments: Any
) -> ToolCallResult:
    """Call a tool like a model does."""
    built = build(function)
    registry = ToolRegistry()
    registry.add(built)
    request = ToolCall("1", built.spec.name, json.dumps(arguments))
    return await call_tool(registry, request, agent="oracle", context=context)


async def text_of(function: Callable[..., Any], **arguments: Any) -> str:
    return (await call(function, **arguments)).result.text


# -- the schema ------------------------------------------------------------------------------------

ROOM = {
    "type": "object",
    "description": "A room of the house.",
    "properties": {"name": {"type": "string"}, "seats": {"type": "integer", "default": 4}},
    "required": ["name"],
}
GUEST = {
    "title": "Guest",
    "type": "object",
    "properties": {
        "name": {"minLength": 1, "title": "Name", "type": "string"},
        "age": {"default": 0, "title": "Age", "type": "integer"},
    },
    "required": ["name"],
}
HINTS: list[tuple[Any, dict[str, Any], Any, Any]] = [
    # the type hint, its schema, an argument, and what the function gets
    (str, {"type": "string"}, "a", "a"),
    (int, {"type": "integer"}, 1, 1),
    (float, {"type": "number"}, 1, 1.0),
    (bool, {"type": "boolean"}, True, True),
    (None, {"type": "null"}, None, None),
    (Any, {}, [1], [1]),
    (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None, None),  # noqa: UP045
    (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}, 3, 3),
    (Literal["a", "b"], {"enum": ["a", "b"]}, "b", "b"),
    (Color, {"enum": ["blue", "red"]}, "red", Color.RED),
    (list[int], {"type": "array", "items": {"type": "integer"}}, [1], [1]),
    (
        tuple[int, str],
        {
            "type": "array", "minItems": 2, "maxItems": 2, "items": False,
            "prefixItems": [{"type": "integer"}, {"type": "string"}],
        },
        [1, "a"],
        (1, "a"),
    ),
    (
        set[Color],
        {"type": "array", "items": {"enum": ["blue", "red"]}, "uniqueItems": True},
        ["red"],
        {Color.RED},
    ),
    (
        dict[int, str],
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"1": "a"},
        {1: "a"},
    ),
    (Room, ROOM, {"name": "Oak"}, Room("Oak")),
    (list[Room], {"type": "array", "items": ROOM}, [{"name": "Oak"}], [Room("Oak")]),
    (
        Point,
        {
            "type": "object",
            "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
            "required": ["x"],
        },
        {"x": 1},
        Point(1),
    ),
    (
        Options,
        {"type": "object", "properties": {"quiet": {"type": "boolean"}}, "required": []},
        {"quiet": True},
        {"quiet": True},
    ),
    (Guest, GUEST, {"name": "Ada"}, Guest(name="Ada")),
    (
        list[Guest] | None,
        {"anyOf": [{"type": "array", "items": GUEST}, {"type": "null"}]},
        [{"name": "Ada", "age": 3}],
        [Guest(name="Ada", age=3)],
    ),
    (
        Annotated[int, Meta(ge=1, description="Hours.")],
        {"type": "integer", "minimum": 1, "description": "Hours."},
        1,
        1,
    ),
    (
        Annotated[int, pydantic.Field(gt=0, le=9, description="Hours.")],
        {"type": "integer", "exclusiveMinimum": 0, "maximum": 9, "description": "Hours."},
        1,
        1,
    ),
    (
        Annotated[str, pydantic.StringConstraints(min_length=2, pattern="^a")],
        {"type": "string", "minLength": 2, "pattern": "^a"},
        "ab",
        "ab",
    ),
    (
        list[Annotated[float, annotated_types.Interval(ge=0, lt=1)]],
        {"type": "array", "items": {"type": "number", "minimum": 0.0, "exclusiveMaximum": 1.0}},
        [0.5],
        [0.5],
    ),
    (
        Annotated[list[str], annotated_types.Len(1, 2)] | None,
        {
            "anyOf": [
                {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2},
                {"type": "null"},
            ]
        },
        ["a"],
        ["a"],
    ),
    (Annotated[int, "a comment"], {"type": "integer"}, 1, 1),
    (date, {"type": "string", "format": "date"}, "2026-01-02", date(2026, 1, 2)),
    (datetime, {"type": "string"}, "2026-01-02T03:04:00", datetime(2026, 1, 2, 3, 4)),
    (Decimal, {"type": "string", "format": "decimal"}, "1.5", Decimal("1.5")),
    (UUID, {"type": "string", "format": "uuid"}, str(UUID(int=1)), UUID(int=1)),
    (Path, {"type": "string", "format": "path"}, "a/b", Path("a/b")),
]  # fmt: skip


@pytest.mark.parametrize(("hint", "schema", "argument", "value"), HINTS)
async def test_a_type_hint_becomes_a_schema_and_a_value(
    hint: Any, schema: dict[str, Any], argument: Any, value: Any
) -> None:
    """The model sees the schema; the function gets an object of the type."""
    seen: list[Any] = []

    async def work(x: Any) -> None:
        """Work."""
        seen.append(x)

    work.__annotations__["x"] = hint
    assert build(tool(work)).spec.parameters == {
        "type": "object",
        "properties": {"x": schema},
        "required": ["x"],
        "additionalProperties": False,
    }
    assert (await text_of(work, x=argument)) == "Done."
    assert seen == [value]
    assert type(seen[0]) is type(value)


DEFAULTS: list[tuple[Any, Any, Any]] = [
    (int, 3, 3),
    (int | None, None, None),
    (Color, Color.RED, "red"),
    (list[str], ["a"], ["a"]),
    (set[int], {1}, [1]),
    (tuple[int, ...], (), []),
    (Room, Room("Oak"), {"name": "Oak", "seats": 4}),
    (Guest, Guest(name="Ada"), {"name": "Ada", "age": 0}),
    (Path, Path("a"), "a"),
]


@pytest.mark.parametrize(("hint", "default", "encoded"), DEFAULTS)
async def test_a_default_is_in_the_schema(hint: Any, default: Any, encoded: Any) -> None:
    """The parameter is optional; the function gets an equal object of the type."""
    seen: list[Any] = []

    async def work(x: Any = default) -> None:
        """Work."""
        seen.append(x)

    work.__annotations__["x"] = hint
    schema = build(tool(work)).spec.parameters
    assert schema["properties"]["x"]["default"] == encoded
    assert "required" not in schema
    await call(work)
    assert seen == [default]


def test_a_recursive_type_refers_to_itself() -> None:
    """All other types are inlined."""

    @tool
    def work(folder: Folder, branch: Branch) -> None:
        """Work."""

    properties = build(work).spec.parameters["properties"]
    definitions = build(work).spec.parameters["$defs"]
    (branch,) = definitions.keys() - {"Folder"}
    assert properties == {
        "folder": {"$ref": "#/$defs/Folder"},
        "branch": {"$ref": f"#/$defs/{branch}"},
    }
    items = {"$ref": "#/$defs/Folder"}
    assert definitions["Folder"] == {
        "type": "object",
        "description": "A folder with folders.",
        "properties": {
            "name": {"type": "string"},
            "folders": {"type": "array", "items": items, "default": []},
        },
        "required": ["name"],
    }
    assert definitions[branch]["properties"]["branches"]["items"] == {"$ref": f"#/$defs/{branch}"}


DOCSTRINGS: list[tuple[str, str, dict[str, str]]] = [
    ("Book a room.", "Book a room.", {}),
    (
        "Book a room\n    for you.\n\n    Not read by the model.\n    room: prose.",
        "Book a room for you.",
        {},
    ),
    (
        "Book a room.\n\n    room: the name\n        of it\n    hours: how long\n\n    The end.",
        "Book a room.",
        {"room": "the name of it", "hours": "how long"},
    ),
    ("Book a room.\n    room: the name", "Book a room.", {"room": "the name"}),
    (
        "Book a room.\n\n    Args:\n        room (str): the name\n            of it\n\n"
        "        hours: how long\n    Returns:\n        text: the answer\n",
        "Book a room.",
        {"room": "the name of it", "hours": "how long"},
    ),
    ("Book a room.\n\n    Returns: the text.\n    room: x\n", "Book a room.", {}),
    ("Book a room.\n\n    room:\n        the name\n", "Book a room.", {"room": "the name"}),
]


@pytest.mark.parametrize(("docstring", "description", "parameters"), DOCSTRINGS)
def test_descriptions_come_from_the_docstring(
    docstring: str, description: str, parameters: dict[str, str]
) -> None:
    """The first paragraph describes the tool, `name: text` a parameter."""

    def work(ctx: Context, room: str, hours: int = 1) -> None: ...

    work.__doc__ = docstring
    spec = build(tool(work)).spec
    properties = spec.parameters["properties"]
    assert spec.description == description
    assert {k: v["description"] for k, v in properties.items() if "description" in v} == parameters
    assert [*properties] == ["room", "hours"]


# -- declarations ----------------------------------------------------------------------------------


def test_the_decorator_only_marks_the_function() -> None:
    """It stays callable, and each app finds its declaration."""

    def work(x: int) -> int:
        """Work."""
        return x + 1

    assert tool(work) is work
    assert work(1) == 2
    assert [*extensions_in({"work": work})] == [*extensions_of(work)]
    built = build(work)
    assert (built.spec.name, built.spec.description) == ("work", "Work.")
    assert (built.category, built.agent_scope, built.effect) == ("custom", ("oracle",), Effect.ONCE)
    assert (built.writes, built.sends, built.reads_private) == (True, True, True)
    assert built.timeout_seconds == 30


def test_options_are_those_of_the_tool() -> None:
    """A given name and description replace those of the function."""

    @tool(
        name="look",
        description="Look.",
        category="house",
        scope=("librarian",),
        effect="none",
        writes=False,
        sends=False,
        reads_private=False,
        untrusted=True,
        timeout_seconds=2,
    )
    def work() -> None: ...

    built = build(work)
    assert (built.spec.name, built.spec.description) == ("look", "Look.")
    assert built.spec.parameters == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }
    assert (built.category, built.agent_scope) == ("house", ("librarian",))
    assert (built.effect, built.timeout_seconds) == (Effect.NONE, 2)
    assert (built.writes, built.sends, built.reads_private) == (False, False, False)
    assert built.origin.is_untrusted


def no_hint(room, hours: int = 1) -> None:  # type: ignore[no-untyped-def]
    """Work."""


def stars(*rooms: str, **more: int) -> None:
    """Work."""


def positional(room: str, /) -> None:
    """Work."""


def unknown_hint(room: Chamber) -> None:  # type: ignore[name-defined]  # noqa: F821
    """Work."""


def unsupported(room: threading.Thread) -> None:
    """Work."""


def bytes_or_text(room: list[int] | set[int]) -> None:
    """Work."""


def bad_bound(room: Annotated[str, annotated_types.Ge(1)]) -> None:
    """Work."""


def bad_pattern(room: Annotated[str, Meta(pattern="(")]) -> None:
    """Work."""


def python_pattern(room: Annotated[str, Meta(pattern="(?a:x)")]) -> None:
    """Work."""


def misspelled(room: str) -> None:
    """Work.

    rom: the name
    """


def no_parameters() -> None:
    """Work.

    room: the name
    """


def none_default(room: str = None) -> None:  # type: ignore[assignment]  # noqa: RUF013
    """Work."""


def bad_default(hours: Annotated[int, Meta(ge=1)] = 0) -> None:
    """Work."""


def object_default(x: int = object()) -> None:  # type: ignore[assignment]
    """Work."""


def generator() -> Iterator[int]:
    """Work."""
    yield 1


async def async_generator() -> AsyncIterator[int]:
    """Work."""
    yield 1


def undescribed() -> None: ...


def number_project(project_id: int) -> None:
    """Work."""


def two_contexts(ctx: Context, other: Context) -> None:
    """Work."""


def fine() -> None:
    """Work."""


class Worker:
    """Work."""


NO_STARS = (
    "but a model passes arguments by name. Give each argument a parameter that can be a keyword."
)
NOT_A_PARAMETER = "in its docstring, which is not a parameter."
GENERATOR = "is a generator. Return the whole result; send parts of it with ctx.emit."
FROM_HINTS = "The schema for the model comes from type hints."
CHARACTERS = "letters, digits, '_' and '-'."
JSON_TYPES = "Use types that JSON can express."
PROBLEMS: list[tuple[Any, dict[str, Any], list[str]]] = [
    (no_hint, {}, ["has no type hint for 'room'. " + FROM_HINTS]),
    (stars, {}, [f"has *rooms, {NO_STARS}", f"has **more, {NO_STARS}"]),
    (positional, {}, [f"has the positional-only parameter 'room', {NO_STARS}"]),
    (
        unknown_hint,
        {},
        [
            "has an unknown type hint 'Chamber' for 'room': name 'Chamber' is not defined. "
            "Define it in the module, and import it at runtime, not only for type checkers."
        ],
    ),
    (
        unsupported,
        {},
        [
            "cannot get a 'threading.Thread' for 'room' from a model: type <class "
            f"'threading.Thread'> is not supported. {JSON_TYPES}"
        ],
    ),
    (
        bytes_or_text,
        {},
        [
            "cannot get a 'list[int] | set[int]' for 'room' from a model: Type unions may not "
            "contain more than one array-like (list, set, tuple) type - type "
            f"`list[int] | set[int]` is not supported. {JSON_TYPES}"
        ],
    ),
    (misspelled, {}, [f"describes 'rom' {NOT_A_PARAMETER} Did you mean 'room'?"]),
    (no_parameters, {}, [f"describes 'room' {NOT_A_PARAMETER} It has no parameters."]),
    (
        none_default,
        {},
        [
            "has the default None for 'room', which is no 'str': Expected `str`, got `null`. "
            "Write str | None."
        ],
    ),
    (
        bad_default,
        {},
        [
            "has the default 0 for 'hours', which is no 'Annotated[int, Meta(ge=1)]': "
            "Expected `int` >= 1."
        ],
    ),
    (generator, {}, [GENERATOR]),
    (async_generator, {}, [GENERATOR]),
    (undescribed, {}, ["has no description. Write a docstring: the model chooses a tool by it."]),
    (number_project, {}, ["gets 'project_id' from Dodona, so its type hint must be str."]),
    (Worker, {}, ["is a class. Decorate a function."]),
    (fine, {"efect": "once"}, ["has the unknown option 'efect'. Did you mean 'effect'?"]),
    (fine, {"effect": "onec"}, ["has the unknown effect 'onec'. Did you mean 'once'?"]),
    (fine, {"effect": "?"}, ["has the unknown effect '?'. Available: none, keyed, once."]),
    (fine, {"category": "a b"}, [f"has the invalid category 'a b'. Use up to 40 {CHARACTERS}"]),
    (fine, {"scope": "oracle"}, ['has a string as its scope. Write ("oracle",).']),
    (fine, {"timeout_seconds": 0}, ["must have a timeout > 0 seconds (got 0)."]),
    (fine, {"timeout_seconds": float("nan")}, ["must have a timeout > 0 seconds (got nan)."]),
    (fine, {"timeout_seconds": "1"}, ["must have a timeout > 0 seconds (got '1')."]),
    (
        misspelled,
        {"effect": "onec", "timeout_seconds": -1},
        [
            f"describes 'rom' {NOT_A_PARAMETER} Did you mean 'room'?",
            "has the unknown effect 'onec'. Did you mean 'once'?",
            "must have a timeout > 0 seconds (got -1).",
        ],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("function", "options", "texts"), PROBLEMS)
def test_problems_of_a_declaration_are_located(
    function: Any, options: dict[str, Any], texts: list[str]
) -> None:
    """At the function, and all together."""
    declaration = ToolDeclaration(function, options)  # type: ignore[arg-type]
    with pytest.raises(ExtensionError) as caught:
        declaration.build()
    where = [str(problem.where) for problem in caught.value.problems()]
    name, file = function.__name__, Path(__file__)
    line = next(
        number
        for number, text in enumerate(file.read_text().splitlines(), 1)
        if text.startswith((f"def {name}(", f"async def {name}(", f"class {name}:"))
    )
    assert where == [f"{file}:{line}"] * len(texts)
    assert str(caught.value) == "\n".join(f"{file}:{line}: tool '{name}' {text}" for text in texts)


@pytest.mark.parametrize(
    "function", [object_default, bad_bound, bad_pattern, python_pattern, two_contexts]
)
def test_an_odd_declaration_is_an_error_too(function: Any) -> None:
    """Whatever the text: loading it raises a ExtensionError."""
    with pytest.raises(ExtensionError, match=f"test_functions.py:.*tool '{function.__name__}'"):
        ToolDeclaration(function, {}).build()


def test_an_invalid_name_is_an_error() -> None:
    """A lambda needs a name."""
    with pytest.raises(ExtensionError, match="tool '<lambda>' has an invalid name"):
        ToolDeclaration(lambda: None, {"description": "Work."}).build()


# -- calls -----------------------------------------------------------------------------------------


async def test_a_function_gets_its_context() -> None:
    """By annotation or by the name `ctx`; the project is not the model's choice."""
    seen: list[Context] = []

    @tool
    async def work(mine: Context, project_id: str, x: int) -> str:
        """Work."""
        seen.append(mine)
        return f"{project_id} {x}"

    @tool
    def named(x: int, ctx=None) -> str:  # type: ignore[no-untyped-def]
        """Work."""
        seen.append(ctx)
        return str(x)

    started = time.monotonic()
    assert await text_of(work, x=1) == "oaks 1"
    assert await text_of(named, x=2) == "2"
    for ctx in seen:
        assert (ctx.user_id, ctx.project_id, ctx.run_id) == ("ada", "oaks", 7)
        assert (ctx.agent, ctx.key, ctx.is_cancelled) == ("oracle", "run-1/tools[0]", False)
        assert started + 30 <= ctx.deadline <= time.monotonic() + 30
        assert 0 < ctx.seconds_left <= 30


async def test_an_argument_that_cannot_be_converted_is_a_retry() -> None:
    """The error names the parameter, and the place in it."""

    @tool
    async def work(day: date, days: list[date]) -> None:
        """Work."""

    @tool
    async def invite(guest: Guest | None = None) -> None:
        """Work."""

    class Checked(pydantic.BaseModel):
        n: int

        @pydantic.field_validator("n")
        @classmethod
        def check(cls, n: int) -> int:
            if n % 2:
                raise ValueError("must be even")
            return n

    async def pick(x: Any) -> None:
        """Work."""

    pick.__annotations__["x"] = Checked
    outcome = await call(work, day="soon", days=["2026-01-02", "?"])
    assert outcome.result.failed
    assert outcome.result.text == (
        "The arguments of work are invalid: day: Invalid RFC3339 encoded date. "
        "days[1]: Invalid RFC3339 encoded date."
    )
    assert await text_of(tool(pick), x={"n": 1}) == (
        "The arguments of pick are invalid: x: n: Value error, must be even."
    )
    assert "guest" in await text_of(invite, guest={"name": ""})


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ToolRetry("say which room"), "say which room"),
        (ToolFailed("The house is closed."), "The house is closed."),
        (KeyError("x"), "work failed: an error inside the tool. Repeating the call may not help."),
        (SystemExit(1), "work called sys.exit, which a tool cannot do."),
        (
            StopIteration(),
            "work failed: an error inside the tool. Repeating the call may not help.",
        ),
    ],
)
@pytest.mark.parametrize("is_async", [True, False])
async def test_what_a_function_raises(error: BaseException, text: str, *, is_async: bool) -> None:
    """The model reads ToolRetry and ToolFailed; the process survives the rest."""

    async def work_async() -> None:
        """Work."""
        raise error

    def work_sync() -> None:
        """Work."""
        raise error

    work = tool(name="work")(work_async if is_async else work_sync)
    outcome = await call(work)
    assert (outcome.result.failed, outcome.result.text) == (True, text)


RESULTS: list[tuple[Any, str]] = [
    ("text", "text"),
    ("", ""),
    ("half \ud800", "half ?"),
    (None, "Done."),
    (3, "3"),
    (True, "true"),
    (1.5, "1.5"),
    ([1, "a"], '[1,"a"]'),
    ({"a": {1}}, '{"a":[1]}'),
    (Room("Oak"), '{"name":"Oak","seats":4}'),
    (Point(1), '{"x":1,"y":0}'),
    (Guest(name="Ada"), '{"name":"Ada","age":0}'),
    ([Guest(name="Ada")], '[{"name":"Ada","age":0}]'),
    (Color.RED, '"red"'),
    (Path("a/b"), '"a/b"'),
    (date(2026, 1, 2), '"2026-01-02"'),
    (Result(None), "Done."),
    (Result(Room("Oak", 2)), '{"name":"Oak","seats":2}'),
]


@pytest.mark.parametrize(("value", "text"), RESULTS)
async def test_a_result_becomes_text(value: Any, text: str) -> None:
    """Text stays as it is; other values are JSON."""

    @tool
    async def work() -> Any:
        """Work."""
        return value

    outcome = await call(work)
    assert (outcome.result.failed, outcome.result.text) == (False, text)


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"x", "work returned an object of the type bytes, which is no result."),
        (object(), "work returned an object of the type object, which is no result."),
        ({"a": len}, "work returned an object of the type dict, which is no result."),
        (CYCLE, "work returned an object of the type list, which is no result."),
        (ToolOutput, "work returned an object of the type type, which is no result."),
    ],
)
async def test_another_result_is_an_error(value: Any, text: str) -> None:
    """It names the type."""

    @tool
    def work() -> Any:
        """Work."""
        return value

    hint = "A tool returns text, a model, JSON values, a Result, or None."
    outcome = await call(work)
    assert (outcome.result.failed, outcome.result.text) == (True, f"{text} {hint}")


async def test_a_result_has_sources() -> None:
    """Paths, URLs and references; anything else is an error."""
    reference = SourceReference("c.md", "C", kind=SourceKind.THREAD)

    @tool
    async def work() -> Result:
        """Work."""
        return Result("x", sources=["a.md", Path("b.md"), "https://oaks.example/d", reference])

    @tool
    async def single() -> Result:
        """Work."""
        return Result("x", sources="a.md")

    @tool
    async def wrong() -> Result:
        """Work."""
        return Result("x", sources=[3])  # type: ignore[list-item]

    assert (await call(work)).output.sources == (
        SourceReference("a.md"),
        SourceReference("b.md"),
        SourceReference("https://oaks.example/d", kind=SourceKind.WEB),
        reference,
    )
    assert (await call(single)).output.sources == (SourceReference("a.md"),)
    assert await text_of(wrong) == (
        "wrong returned a source of the type int. A source is a path, a URL or a SourceReference."
    )


async def test_a_large_result_is_cut() -> None:
    """The model gets the beginning of five megabytes."""

    @tool
    def work() -> str:
        """Work."""
        return "x" * 5_000_000

    text = await text_of(work)
    assert len(text) == MAX_RESULT_CHARS
    assert text.endswith("[Cut here: this is the beginning of 5,000,000 characters.]")


# -- threads ---------------------------------------------------------------------------------------

VARIABLE = contextvars.ContextVar("variable", default="unset")


async def test_a_def_runs_in_its_own_thread() -> None:
    """The loop keeps running, and the thread sees the context variables of the call."""
    go_on, has_started = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    @tool
    def work() -> list[str]:
        """Work."""
        loop.call_soon_threadsafe(has_started.set)
        assert go_on.wait(20)
        return [threading.current_thread().name, VARIABLE.get()]

    VARIABLE.set("set")
    pending = asyncio.create_task(call(work))
    await has_started.wait()
    go_on.set()  # only a loop that runs gets here
    assert (await pending).result.text == '["tool work","set"]'


async def test_an_async_def_runs_in_the_loop() -> None:
    """Also behind a sync wrapper, and as a callable object."""

    @tool
    async def work() -> str:
        """Work."""
        return threading.current_thread().name

    async def inner() -> str:
        """Work."""
        await asyncio.sleep(0)
        return threading.current_thread().name

    @tool
    @functools.wraps(inner)
    def outer() -> Any:
        return inner()

    assert await text_of(work) == threading.current_thread().name
    assert await text_of(outer) == threading.current_thread().name


async def test_a_thread_sees_the_timeout_of_its_call() -> None:
    """The model reads that the tool was stopped; what the thread then sends is discarded."""
    reports: list[str] = []
    seen: list[bool] = []
    has_ended = threading.Event()

    @tool(timeout_seconds=0.05)
    def work(ctx: Context) -> None:
        """Work."""
        ctx.progress("started")
        seen.append(ctx.wait_cancelled(20))
        seen.append(ctx.is_cancelled)
        ctx.progress("too late")
        has_ended.set()

    outcome = await call(work, context=replace(CONTEXT, report=reports.append))
    assert outcome.timed_out
    assert outcome.result.text == (
        "work took longer than 0.05 seconds and was stopped. "
        "It may have taken effect anyway: check before you repeat it."
    )
    assert await asyncio.to_thread(has_ended.wait, 20)
    await asyncio.sleep(0)
    assert (seen, reports) == ([True, True], ["started"])


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_cancelled_run_is_visible(*, is_async: bool) -> None:
    """In the context, from any thread."""
    contexts: list[Context] = []
    has_started = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def work_async(ctx: Context) -> None:
        """Work."""
        contexts.append(ctx)
        has_started.set()
        await asyncio.sleep(60)

    def work_sync(ctx: Context) -> None:
        """Work."""
        contexts.append(ctx)
        loop.call_soon_threadsafe(has_started.set)
        ctx.wait_cancelled(20)

    pending = asyncio.create_task(call(tool(work_async if is_async else work_sync)))
    await has_started.wait()
    assert not contexts[0].is_cancelled
    pending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pending
    assert contexts[0].is_cancelled


@pytest.mark.parametrize("is_async", [True, False])
async def test_progress_and_text_arrive_in_order(*, is_async: bool) -> None:
    """In the thread of the loop, before the result."""
    sent: list[tuple[str, str, int]] = []

    def work_sync(ctx: Context) -> None:
        """Work."""
        ctx.progress("one")
        ctx.emit("two")

    async def work_async(ctx: Context) -> None:
        """Work."""
        ctx.progress("one")
        await asyncio.to_thread(ctx.emit, "two")
        await asyncio.sleep(0)

    def receive(kind: str) -> Callable[[str], None]:
        return lambda text: sent.append((kind, text, threading.get_ident()))

    context = replace(CONTEXT, report=receive("report"), emit=receive("emit"))
    await call(tool(work_async if is_async else work_sync), context=context)
    here = threading.get_ident()
    assert sent == [("report", "one", here), ("emit", "two", here)]


def test_a_test_can_make_a_context() -> None:
    """Without a running loop."""
    reports: list[str] = []
    ctx = Context(replace(CONTEXT, report=reports.append), timeout_seconds=1)
    ctx.progress("x")
    assert reports == ["x"]


async def wait_for_threads() -> None:
    """Wait until all threads of tools have ended, also those of earlier tests."""
    for thread in [*blocking_calls._running]:
        await asyncio.to_thread(thread.join, 20)


async def test_threads_that_hang_are_limited() -> None:
    """64 per process; the error names the tools, and other tools are not affected."""
    release, has_started = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    @tool(timeout_seconds=0.01)
    def hang() -> None:
        """Work."""
        release.wait(50)

    @tool(timeout_seconds=50)
    def busy() -> None:
        """Work."""
        loop.call_soon_threadsafe(has_started.set)
        release.wait(50)

    @tool
    async def other() -> str:
        """Work."""
        return "fine"

    await wait_for_threads()
    count = blocking_calls.MAX_THREADS
    assert all(
        each.timed_out for each in await asyncio.gather(*(call(hang) for _ in range(count - 1)))
    )
    pending = asyncio.create_task(call(busy))
    await has_started.wait()
    try:
        assert await text_of(busy) == (
            "busy was not called: 64 calls in threads have not ended: hang (63), busy (1). "
            "Calls that hang, past their timeout: hang (63)."
        )
        assert await text_of(other) == "fine"
    finally:
        release.set()
    assert (await pending).result.text == "Done."
    await wait_for_threads()
    assert await text_of(busy) == "Done."
