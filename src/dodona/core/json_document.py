"""JSON documents: one struct parses, validates, encodes and describes a document of the API.

A field's type says everything about it: `Annotated[str, Meta(max_length=200, description="…")]`.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from inspect import cleandoc
from itertools import islice
from typing import (
    Annotated,
    Any,
    Final,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import UNSET, Meta, inspect, structs

from dodona.core.errors import BadRequest, InvalidField, did_you_mean

Schema: TypeAlias = dict[str, Any]
SCHEMA_REF: Final = "#/components/schemas/{name}"
MAX_PROBLEMS: Final = 20  # that one error reports

_UNLIMITED: Final = 10**15  # a higher bound is technical: it is not mentioned

D = TypeVar("D", bound=msgspec.Struct)


class JsonDocument(msgspec.Struct):
    """A JSON document of the API."""


class RequestDocument(JsonDocument, forbid_unknown_fields=True):
    """The body of a request. In a field with a default value, null means the default.

    A field that may be `UNSET` does not accept null, unless its type says so: null could delete.
    """


class Timestamp(float):
    """Seconds since 1970. As text and in JSON: ISO 8601 in UTC with milliseconds."""

    __slots__ = ()

    def __str__(self) -> str:
        text = datetime.fromtimestamp(self, UTC).isoformat(timespec="milliseconds")
        return f"{text.removesuffix('+00:00')}Z"

    @classmethod
    def or_none(cls, seconds: float | None) -> Timestamp | None:
        """Return the timestamp; None stays None."""
        return None if seconds is None else cls(seconds)


NextBefore: TypeAlias = Annotated[
    int | None, Meta(description="Pass it as `before` to get older ones; null on the last page.")
]


def to_builtins(value: Any) -> Any:
    """Return a document as dicts, lists and scalars, as its JSON would be decoded."""
    return msgspec.to_builtins(value, enc_hook=str)


# -- parsing ---------------------------------------------------------------------------------------


def parse_document(document: type[D], values: Mapping[str, Any]) -> D:
    """Build a document from decoded JSON. Raises one BadRequest with all problems."""
    nulls = _fields_where_null_is_default(document)
    given = {name: value for name, value in values.items() if not (value is None and name in nulls)}
    try:
        return msgspec.convert(given, document)
    except msgspec.ValidationError as error:
        # msgspec stops at the first problem; its text is for programmers.
        problems = [*islice(_find_field_problems(document, given), MAX_PROBLEMS)]
        raise BadRequest.combine(problems or [BadRequest(f"{error}.")]) from None


def check_document(document: msgspec.Struct) -> None:
    """Check the fields of a document that was built by code. Raises all problems at once."""
    kind = type(document)
    values = [getattr(document, name) for name in kind.__struct_fields__]
    try:
        msgspec.convert(values, _value_types(kind))
    except msgspec.ValidationError:
        fields = zip(_fields(kind), values, strict=True)
        given = {name: value for name, value in fields if value is not UNSET}
        problems = [*_find_field_problems(kind, given)]
        if problems:
            raise BadRequest.combine(problems) from None


def parse_value(expected: Any, name: str, value: Any) -> Any:
    """Check and return one decoded value of a type. Raises InvalidField that calls it `name`.

    The error has the hint in the type's metadata: `Meta(extra={"hint": "…"})`.
    """
    try:
        return msgspec.convert(value, expected)
    except msgspec.ValidationError:
        info = inspect.type_info(expected)
        text = describe(info)
        rule = f"must be {text}{_describe_value(value)}" if text else "is not supported"
        raise InvalidField(f"{name} {rule}.", field=name, hint=_hint(info)) from None


def _find_field_problems(
    document: type[msgspec.Struct], values: Mapping[str, Any]
) -> Iterator[InvalidField]:
    fields, types, config = _fields(document), _types(document), document.__struct_config__
    for name in values:
        if config.forbid_unknown_fields and name not in (*fields, config.tag_field):
            hint = did_you_mean(name, fields)
            yield InvalidField(f"there is no field {name!r:.80}.", field=name[:80], hint=hint)
    for name, field in fields.items():
        if name in values:
            yield from _find_problems(types[field.name], name, values[name])
        elif field.required:
            yield InvalidField(f"{name} is required.", field=name)


def _find_problems(expected: Any, name: str, value: Any) -> Iterator[InvalidField]:
    """Yield the problems of a value, each at its innermost field or list item."""
    try:
        parse_value(expected, name, value)
    except InvalidField as problem:
        nested = [*islice(_find_nested_problems(expected, name, value), MAX_PROBLEMS)]
        for each in nested:
            each.hint = each.hint or problem.hint
        yield from nested or [problem]


def _find_nested_problems(expected: Any, name: str, value: Any) -> Iterator[InvalidField]:
    """Yield the problems in an object, or in the objects of a list."""
    if isinstance(value, dict):
        for each in _find_object_problems(_structs(expected), cast("dict[str, Any]", value)):
            message, field = f"{name}: {each.message}", f"{name}.{each.field}"
            yield InvalidField(message, field=field, hint=each.hint)
    elif isinstance(value, list):
        lists = [each for each in _alternatives(expected) if get_origin(each) is list]
        items = next((item for each in lists for item in get_args(each) if _structs(item)), None)
        if items is not None:
            for index, element in enumerate(cast("list[Any]", value)):
                yield from _find_problems(items, f"{name}[{index}]", element)


def _find_object_problems(
    structs: Sequence[type[msgspec.Struct]], value: Mapping[str, Any]
) -> Iterator[InvalidField]:
    """Yield the problems of an object. Alternative structs differ in their tag."""
    if len(structs) == 1 and structs[0].__struct_config__.tag_field not in value:
        yield from _find_field_problems(structs[0], value)
    elif structs:
        by_tag = {each.__struct_config__.tag: each for each in structs}
        tag_field = str(structs[0].__struct_config__.tag_field)
        tag = value.get(tag_field)
        if isinstance(tag, str) and tag in by_tag:
            yield from _find_field_problems(by_tag[tag], value)
        else:
            choices = join_alternatives(str(each) for each in by_tag)
            text = f"{tag_field} must be {choices}{_describe_value(tag)}."
            yield InvalidField(text, field=tag_field)


def _structs(expected: Any) -> list[type[msgspec.Struct]]:
    """Return the structs that a value of this type can be."""
    types = [each for each in _alternatives(expected) if isinstance(each, msgspec.StructMeta)]
    return cast("list[type[msgspec.Struct]]", types)


def _alternatives(expected: Any) -> Iterator[Any]:
    """Yield the members of a union without their metadata, or the type itself."""
    match get_origin(expected):
        case typing.Annotated:
            yield from _alternatives(get_args(expected)[0])
        case typing.Union | types.UnionType:
            for each in get_args(expected):
                yield from _alternatives(each)
        case _:
            yield expected


def _hint(info: inspect.Type) -> str:
    if isinstance(info, inspect.Metadata):
        extra = cast("dict[str, str]", info.extra or {})
        return extra.get("hint") or _hint(info.type)
    return ""


@cache
def _fields(document: type[msgspec.Struct]) -> Mapping[str, inspect.Field]:
    info = inspect.type_info(document)
    assert isinstance(info, inspect.StructType)
    return {field.encode_name: field for field in info.fields}


@cache
def _types(document: type[msgspec.Struct]) -> Mapping[str, Any]:
    return get_type_hints(document, include_extras=True)


@cache
def _value_types(document: type[msgspec.Struct]) -> Any:
    return tuple[tuple(_types(document)[name] for name in document.__struct_fields__)]


@cache
def _fields_where_null_is_default(document: type[msgspec.Struct]) -> frozenset[str]:
    unset = {each.encode_name for each in structs.fields(document) if each.default is UNSET}
    fields = [each for each in _fields(document).items() if each[0] not in unset]
    return frozenset(n for n, f in fields if not f.required and not _accepts_null(f.type))


# -- descriptions for people -----------------------------------------------------------------------


def describe(info: inspect.Type) -> str:
    """Describe the values of a type, such as "a string of 1 to 200 characters"; "" if only null."""
    info = _unwrap(info)
    if choices := choices_of(info):
        return join_alternatives(choices)
    match info:
        case inspect.CollectionType():
            return _describe_list(info)
        case inspect.UnionType(types=types):
            texts = [describe(each) for each in types if not isinstance(each, inspect.NoneType)]
            return (
                f"{' or '.join(dict.fromkeys(texts))}{', or null' if _accepts_null(info) else ''}"
            )
        case inspect.NoneType():
            return ""
        case inspect.DictType(max_length=0):
            return "an empty object"
        case _:
            return _describe_scalar(info)


def _describe_scalar(info: inspect.Type) -> str:
    match info:
        case inspect.StrType(pattern=str(pattern), max_length=None):
            return f"a string that matches {pattern}"
        case inspect.StrType(min_length=low, max_length=high):
            return _describe_text(low or None, high)
        case inspect.IntType(ge=low, le=high):
            return _describe_number("a whole number", low, high)
        case inspect.FloatType(ge=low, le=high):
            return _describe_number("a number", low, high)
        case inspect.BoolType():
            return "true or false"
        case _:
            return "an object"


def join_alternatives(names: Iterable[str]) -> str:
    """Join names with commas and a final "or"."""
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def choices_of(info: inspect.Type) -> list[str]:
    """Return the values of an enumeration; empty for other types."""
    match info:
        case inspect.LiteralType(values=values):
            return [str(each) for each in values]
        case inspect.EnumType(cls=enum):
            return [str(each.value) for each in enum]
        case _:
            return []


def _describe_list(info: inspect.CollectionType) -> str:
    item = _unwrap(info.item_type)
    if choices := choices_of(item):
        return f"a list with any of {', '.join(choices)}"
    noun = "strings" if isinstance(item, inspect.StrType) else "objects"
    size = _describe_range(info.min_length or None, info.max_length)
    return f"a list of {size} {noun}" if size else f"a list of {noun}"


def _describe_text(low: int | None, high: int | None) -> str:
    if low == 1 and high is None:
        return "a non-empty string"
    size = _describe_range(low, high)
    return f"a string of {size} characters" if size else "a string"


def _describe_number(noun: str, low: float | None, high: float | None) -> str:
    if low is not None and low == high:
        return f"{low:,}"
    high = None if high is not None and high >= _UNLIMITED else high
    if low is not None and high is not None:
        return f"{noun} from {low:,} to {high:,}"
    return f"{noun} of {_describe_range(low, high)}" if (low, high) != (None, None) else noun


def _describe_range(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f"{low:,} to {high:,}"
    if low is not None:
        return f"at least {low:,}"
    return "" if high is None else f"at most {high:,}"


def _describe_value(value: Any) -> str:
    match value:
        case str() if len(value) > 40:
            return f" (got {len(value):,} characters)"
        case bool() | None:
            return f" (got {msgspec.json.encode(value).decode()})"
        case str() | int() | float():
            return f" (got {value!r:.80})"
        case _:
            return ""


def strip_null(expected: Any) -> inspect.Type:
    """Return the description of a type without metadata, null and unset."""
    info = _unwrap(inspect.type_info(expected))
    if isinstance(info, inspect.UnionType):
        return _unwrap(next(t for t in info.types if not isinstance(t, inspect.NoneType)))
    return info


def _unwrap(info: inspect.Type) -> inspect.Type:
    """Return the type without metadata, and without null or unset if only one type is left."""
    match info:
        case inspect.Metadata(type=inner):
            return _unwrap(inner)
        case inspect.UnionType(types=types) if not _accepts_null(info) and len(types) == 1:
            return _unwrap(types[0])
        case _:
            return info


def _accepts_null(info: inspect.Type) -> bool:
    match info:
        case inspect.Metadata(type=inner):
            return _accepts_null(inner)
        case inspect.UnionType(types=types):
            return any(_accepts_null(each) for each in types)
        case _:
            return isinstance(info, inspect.NoneType | inspect.AnyType)


# -- schemas for programs --------------------------------------------------------------------------


def build_schemas(documents: Iterable[Any]) -> tuple[list[Schema], dict[str, Schema]]:
    """Return the JSON Schema of each type, and the named schemas that they refer to."""
    types = [*documents]
    refs, schemas = msgspec.json.schema_components(
        types, schema_hook=_timestamp_schema, ref_template=SCHEMA_REF
    )
    for schema in schemas.values():
        if "description" in schema:
            schema["description"] = cleandoc(schema["description"])
    for document in _subclasses(JsonDocument):
        is_nested_request = issubclass(document, RequestDocument) and document not in types
        if (schema := schemas.get(document.__name__)) is not None and not is_nested_request:
            _adapt_schema(document, schema)
    return list(refs), schemas


def _subclasses(document: type[JsonDocument]) -> Iterator[type[JsonDocument]]:
    for each in document.__subclasses__():
        yield each
        yield from _subclasses(each)


def _adapt_schema(document: type[JsonDocument], schema: Schema) -> None:
    """Make a request's optional fields nullable; require all fields that a response always has."""
    properties: dict[str, Schema] = schema["properties"]
    if issubclass(document, RequestDocument):
        for name in _fields_where_null_is_default(document):
            properties[name] = _nullable(properties[name])
        return
    for each in properties.values():
        each.pop("default", None)
    fields = structs.fields(document)
    schema["required"] = [each.encode_name for each in fields if each.default is not UNSET]


def _nullable(schema: Schema) -> Schema:
    outer = {name: schema.pop(name) for name in ("default", "description") if name in schema}
    return {**outer, "anyOf": [schema, {"type": "null"}]}


def _timestamp_schema(custom: type) -> Schema:
    if custom is Timestamp:
        return {"type": "string", "format": "date-time"}
    raise NotImplementedError(f"no JSON Schema for {custom}")  # msgspec asks for this exception
