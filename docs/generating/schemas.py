"""JSON Schemas in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from generating.writing import table

Schema: TypeAlias = Mapping[str, Any]

_WORDS: Final = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "`true` or `false`",
    "object": "an object",
}


def fields(schema: Schema, *, only: tuple[str, ...] | None = None, page: str = "") -> str:
    """A table of the fields of an object; links lead to `page`."""
    required = schema.get("required", ())
    closed = schema.get("additionalProperties") is False
    rows: list[tuple[str, ...]] = []
    for name, field in schema["properties"].items():
        if only is not None and name not in only:
            continue
        need = "must be given" if closed and name in required else ""
        left_out = "" if closed or name in required else "may be missing"
        rows.append((f"`{name}`", takes(field, page=page), need or left_out, about(field)))
    return table(("field", "is", "", ""), rows)


def takes(schema: Schema, *, page: str = "") -> str:
    """What a value is."""
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
            return f"a list of {takes(schema['items'], page=page)}"
        case "object" if "properties" in schema:
            inner = ", ".join(f"`{name}`" for name in schema["properties"])
            return f"an object of {inner}"
        case None:
            return "anything"
        case kind:
            return " ".join(filter(None, (_WORDS[kind], _bounds(schema))))


def about(schema: Schema) -> str:
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
    """From … to …, of a number's value or of a text's length."""
    of_text = schema["type"] == "string"
    names = ("minLength", "maxLength") if of_text else ("minimum", "maximum")
    lowest, highest = (schema.get(name) for name in names)
    unit = " characters" if of_text else ""
    if lowest is None and highest is None:
        return "in ISO 8601" if schema.get("format") == "date-time" else ""
    if highest is None or highest >= 10**15:
        return f"≥ {lowest:,}{unit}"
    return f"from {lowest or 0:,} to {highest:,}{unit}"
