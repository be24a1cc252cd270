"""Parameters in the path, query or headers of a request, as a handler's signature declares them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from inspect import Parameter
from typing import Annotated, Any, Final, Literal, TypeAlias, cast, get_args

from msgspec import Meta, inspect

from dodona.core.errors import BadRequest, NotFound
from dodona.core.json_document import Schema, choices_of, parse_value, strip_null

MAX_INTEGER: Final = 10**18 - 1  # more digits do not fit a database column
MAX_TEXT_LENGTH: Final = 200

_NUMBER = re.compile(r"[0-9]{1,18}")


def text(description: str, *, max_length: int = MAX_TEXT_LENGTH) -> Meta:
    """Constrain a string parameter."""
    return Meta(min_length=1, max_length=max_length, description=description)


def whole(description: str, low: int = 0, high: int = MAX_INTEGER) -> Meta:
    """Constrain a whole number."""
    return Meta(ge=low, le=high, description=description)


def up_to(limit: int) -> Meta:
    """Constrain the number of results to return."""
    return whole("Maximum number to return.", 1, limit)


ProjectId: TypeAlias = Annotated[str, text("The project.")]
RunId: TypeAlias = Annotated[int, whole("The id of the run.")]


@dataclass(frozen=True, slots=True)
class Header:
    """Marks a parameter that is read from this header."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestParameter:
    """A string, a whole number or one of several values. `key` is its name in the handler."""

    key: str
    name: str
    location: Literal["path", "query", "header"]
    type: Any
    default: Any
    is_required: bool

    @classmethod
    def from_signature(cls, parameter: Parameter, path: str) -> RequestParameter:
        """Read the declaration of a handler's parameter."""
        header = _find_header(parameter.annotation)
        location = "path" if f"{{{parameter.name}}}" in path else "query"
        is_required = parameter.default is Parameter.empty
        return cls(
            key=parameter.name,
            name=header.name if header else parameter.name,
            location="header" if header else location,
            type=parameter.annotation,
            default=None if is_required else parameter.default,
            is_required=is_required,
        )

    def parse(self, value: str | None) -> Any:
        """Return the value. An invalid one in a path raises NotFound, elsewhere BadRequest."""
        if value is None and self.is_required:
            raise BadRequest(f"{self.name} is required.", hint=f"Add ?{self.name}=… to the URL.")
        if value is None:
            return self.default
        is_number = isinstance(strip_null(self.type), inspect.IntType) and _NUMBER.fullmatch(value)
        try:
            return parse_value(self.type, self.name, int(value) if is_number else value)
        except BadRequest:
            if self.location == "path":
                raise NotFound(f"there is no {self.name} {value!r:.80}.") from None
            raise

    def as_openapi(self) -> dict[str, Any]:
        """Return the OpenAPI parameter object."""
        schema = _schema(strip_null(self.type))
        if self.default is not None:
            schema["default"] = getattr(self.default, "value", self.default)
        return {
            "name": self.name,
            "in": self.location,
            "required": self.is_required,
            "description": description_of(self.type),
            "schema": schema,
        }


def _find_header(annotation: Any) -> Header | None:
    parts = (annotation, *get_args(annotation))  # the parts of a union, too
    metadata = [each for part in parts for each in getattr(part, "__metadata__", ())]
    return next((each for each in metadata if isinstance(each, Header)), None)


def _schema(info: inspect.Type) -> Schema:
    match info:
        case inspect.IntType(ge=low, le=high):
            return {"type": "integer", "minimum": low, "maximum": high}
        case inspect.StrType(min_length=low, max_length=high):
            return {"type": "string", "minLength": low, "maxLength": high}
        case _:
            return {"type": "string", "enum": choices_of(info)}


def description_of(expected: Any) -> str:
    """Return the description in a type's metadata."""
    return _description(inspect.type_info(expected))


def _description(info: inspect.Type) -> str:
    match info:
        case inspect.Metadata():
            schema = cast("Schema", info.extra_json_schema or {})
            return schema.get("description") or _description(info.type)
        case inspect.UnionType(types=types):
            return next((text for each in types if (text := _description(each))), "")
        case _:
            return ""
