"""Functions that build JSON Schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

Schema: TypeAlias = dict[str, Any]


def string(description: str = "", **more: Any) -> Schema:
    """Return the schema of a string; `more` are further keywords."""
    return _add_description(description, {"type": "string", **more})


def integer(description: str = "", **more: Any) -> Schema:
    """Return the schema of an integer; `more` are further keywords."""
    return _add_description(description, {"type": "integer", **more})


def number(description: str = "", **more: Any) -> Schema:
    """Return the schema of a number; `more` are further keywords."""
    return _add_description(description, {"type": "number", **more})


def boolean(description: str = "", **more: Any) -> Schema:
    """Return the schema of a boolean; `more` are further keywords."""
    return _add_description(description, {"type": "boolean", **more})


def enum(*values: str) -> Schema:
    """Return the schema of a string with these values."""
    return {"type": "string", "enum": list(values)}


def date_time() -> Schema:
    """Return the schema of an ISO 8601 timestamp."""
    return string(format="date-time")


def array(items: Schema, description: str = "") -> Schema:
    """Return the schema of an array."""
    return _add_description(description, {"type": "array", "items": items})


def object_(description: str = "") -> Schema:
    """Return the schema of an object with any properties."""
    return _add_description(description, {"type": "object"})


def nullable(schema: Schema) -> Schema:
    """Return a schema that also accepts null."""
    return {"anyOf": [schema, {"type": "null"}]}


def ref(name: str) -> Schema:
    """Return a reference to a named schema of the OpenAPI document."""
    return {"$ref": f"#/components/schemas/{name}"}


def response_object(properties: Mapping[str, Schema], *, optional: tuple[str, ...] = ()) -> Schema:
    """Return the schema of a response: all properties but the optional ones are required."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": dict(properties), "required": required}


def request_object(properties: Mapping[str, Schema], *, required: tuple[str, ...] = ()) -> Schema:
    """Return the schema of a request body, which allows no other properties."""
    schema: Schema = {
        "type": "object",
        "properties": dict(properties),
        "additionalProperties": False,
    }
    return {**schema, "required": list(required)} if required else schema


def _add_description(description: str, schema: Schema) -> Schema:
    return {**schema, "description": description} if description else schema
