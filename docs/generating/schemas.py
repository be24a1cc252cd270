"""Formats JSON Schemas as text and tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from generating.writing import table

Schema: TypeAlias = Mapping[str, Any]

_WORDS: Final = {
    "string": "string",
    "integer": "integer",
    "number": "number",
    "boolean": "`true` or `false`",
    "object": "object",
}


def fields(schema: Schema, *, only: tuple[str, ...] | None = None, page: str = "") -> str:
    """Format a table of the fields of an object. Links lead to `page`."""
    required = schema.get("required", ())
    closed = schema.get("additionalProperties") is False
    rows: list[tuple[str, ...]] = []
    for name, field in schema["properties"].items():
        if only is not None and name not in only:
            continue
        presence = "required" if closed and name in required else ""
        if not closed and name not in required:
            presence = "optional"
        rows.append((f"`{name}`", takes(field, page=page), presence, about(field)))
    return table(("field", "type", "", ""), rows)


def takes(schema: Schema, *, page: str = "") -> str:
    """Describe the type of a value."""
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return f"[{name}]({page}#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(takes(each, page=page) for each in schema["anyOf"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{each}`" for each in schema["enum"])
    return _plain(schema, page)


def _plain(schema: Schema, page: str) -> str:
    match schema.get("type"):
        case "null":
            return "`null`"
        case "array":
            return f"list of {takes(schema['items'], page=page)}"
        case "object" if "properties" in schema:
            inner = ", ".join(f"`{name}`" for name in schema["properties"])
            return f"object with {inner}"
        case None:
            return "any"
        case kind:
            return " ".join(filter(None, (_WORDS[kind], _bounds(schema))))


def about(schema: Schema) -> str:
    """Return the description and default of a value."""
    parts = [_described(schema)]
    default = _default(schema)
    if default is not None:
        shown = str(default).lower() if isinstance(default, bool) else default
        parts.append(f"Default: `{shown}`.")
    return " ".join(filter(None, parts))


def _described(schema: Schema) -> str:
    if "description" in schema:
        return str(schema["description"])
    return next(filter(None, map(_described, schema.get("anyOf", ()))), "")


def _default(schema: Schema) -> Any:
    if schema.get("default") not in (None, ""):
        return schema["default"]
    return next((d for each in schema.get("anyOf", ()) if (d := _default(each)) is not None), None)


def _bounds(schema: Schema) -> str:
    """Describe the bounds of a number, or of the length of a string."""
    is_string = schema["type"] == "string"
    names = ("minLength", "maxLength") if is_string else ("minimum", "maximum")
    lowest, highest = (schema.get(name) for name in names)
    unit = " characters" if is_string else ""
    if lowest is None and highest is None:
        return "in ISO 8601" if schema.get("format") == "date-time" else ""
    if highest is None or highest >= 10**15:
        return f"≥ {lowest:,}{unit}"
    return f"from {lowest or 0:,} to {highest:,}{unit}"
