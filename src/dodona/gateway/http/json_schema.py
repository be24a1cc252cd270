"""JSON Schemas, put together of a few words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

Schema: TypeAlias = dict[str, Any]


def string(description: str = "", **more: Any) -> Schema:
    return _add_description(description, {"type": "string", **more})


def integer(description: str = "", **more: Any) -> Schema:
    return _add_description(description, {"type": "integer", **more})


def number(description: str = "", **more: Any) -> Schema:
    return _add_description(description, {"type": "number", **more})


def boolean(description: str = "", **more: Any) -> Schema:
    return _add_description(description, {"type": "boolean", **more})


def enum(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


def date_time() -> Schema:
    return string(format="date-time")


def array(items: Schema, description: str = "") -> Schema:
    return _add_description(description, {"type": "array", "items": items})


def object_(description: str = "") -> Schema:
    """An object of which nothing is promised."""
    return _add_description(description, {"type": "object"})


def nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def response_object(properties: Mapping[str, Schema], *, optional: tuple[str, ...] = ()) -> Schema:
    """What we send: all of it is there but what is optional, and more may come to be."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": dict(properties), "required": required}


def request_object(properties: Mapping[str, Schema], *, required: tuple[str, ...] = ()) -> Schema:
    """What we take: nothing that is not named here."""
    found: Schema = {
        "type": "object",
        "properties": dict(properties),
        "additionalProperties": False,
    }
    return {**found, "required": list(required)} if required else found


def _add_description(description: str, schema: Schema) -> Schema:
    return {**schema, "description": description} if description else schema
