"""JSON Schemas, put together of a few words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

Schema: TypeAlias = dict[str, Any]


def text(about: str = "", **more: Any) -> Schema:
    return _with(about, {"type": "string", **more})


def whole(about: str = "", **more: Any) -> Schema:
    return _with(about, {"type": "integer", **more})


def number(about: str = "", **more: Any) -> Schema:
    return _with(about, {"type": "number", **more})


def yes_or_no(about: str = "", **more: Any) -> Schema:
    return _with(about, {"type": "boolean", **more})


def one_of(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


def time() -> Schema:
    return text(format="date-time")


def listed(items: Schema, about: str = "") -> Schema:
    return _with(about, {"type": "array", "items": items})


def mapped(about: str = "") -> Schema:
    """An object of which nothing is promised."""
    return _with(about, {"type": "object"})


def or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def named(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def document(fields: Mapping[str, Schema], *, optional: tuple[str, ...] = ()) -> Schema:
    """What we send: all of it is there but what is optional, and more may come to be."""
    required = [name for name in fields if name not in optional]
    return {"type": "object", "properties": dict(fields), "required": required}


def request(fields: Mapping[str, Schema], *, required: tuple[str, ...] = ()) -> Schema:
    """What we take: nothing that is not named here."""
    found: Schema = {
        "type": "object",
        "properties": dict(fields),
        "additionalProperties": False,
    }
    return {**found, "required": list(required)} if required else found


def _with(about: str, schema: Schema) -> Schema:
    return {**schema, "description": about} if about else schema
