"""Parse the names and arguments of calls to the tools of a request."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, cast

from dodona.core.messages import ToolSpec
from dodona.models.text_calls.cursor import Mismatch

ParsedCall = tuple[str, str]  # tool name, arguments as JSON

_PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
_PYTHON_LITERALS = {"True": True, "False": False, "None": None}  # some models write Python


class OfferedTools:
    """The tools of a request. Only these can be called."""

    def __init__(self, tools: Iterable[ToolSpec]) -> None:
        self._tools = {tool.name: tool for tool in tools}

    def check_name(self, name: str) -> str:
        """Return the name if it is a tool of the request; else raise Mismatch."""
        if name not in self._tools:
            raise Mismatch
        return name

    def parse_calls(self, text: str, *, arguments_optional: bool) -> list[ParsedCall]:
        """Parse a call or a list of calls, with `name` and `arguments` or `parameters`."""
        value = _decode(text)
        calls = cast("list[Any]", value if isinstance(value, list) else [value])
        if not calls:
            raise Mismatch
        return [self._parse_call(call, arguments_optional=arguments_optional) for call in calls]

    def _parse_call(self, call: Any, *, arguments_optional: bool) -> ParsedCall:
        if not isinstance(call, dict):
            raise Mismatch
        fields = cast("dict[str, Any]", call)
        name, arguments = fields.get("name"), fields.get("arguments", fields.get("parameters"))
        if not isinstance(name, str) or (arguments is None and not arguments_optional):
            raise Mismatch
        if isinstance(arguments, str):
            arguments = _decode(arguments)
        if not isinstance(arguments, dict) and arguments is not None:
            raise Mismatch
        return self.check_name(name), _encode(cast("dict[str, Any]", arguments or {}))

    def parse_json_arguments(self, name: str, text: str) -> ParsedCall:
        """Parse a call whose arguments are a JSON object."""
        arguments = _decode(text)
        if not isinstance(arguments, dict):
            raise Mismatch
        return self.check_name(name), _encode(cast("dict[str, Any]", arguments))

    def parse_text_arguments(self, name: str, values: Mapping[str, str]) -> ParsedCall:
        """Parse a call with plain-text arguments, converted by the schema of the tool."""
        schema = self._tools[name].parameters
        properties = _as_mapping(schema.get("properties"))
        typed = {key: _convert(value, properties.get(key), schema) for key, value in values.items()}
        return name, _encode(typed)


def _decode(text: str) -> Any:
    """Decode JSON leniently: models write unescaped line breaks in strings."""
    try:
        return json.loads(text, strict=False, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        raise Mismatch from None


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(constant)


def _encode(arguments: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()  # a lone surrogate cannot be sent
    except (ValueError, RecursionError):
        raise Mismatch from None
    return text


def _convert(text: str, schema: Any, root: Mapping[str, Any]) -> Any:
    """Convert the text to a type of the schema; return it unchanged if a string is allowed."""
    types = _allowed_types(_as_mapping(schema), root)
    python_types = tuple(python for name in types for python in _PYTHON_TYPES.get(name, ()))
    if "string" in types or not python_types:
        return text
    stripped = text.strip()
    try:
        value: Any = (
            _PYTHON_LITERALS[stripped] if stripped in _PYTHON_LITERALS else _decode(stripped)
        )
    except Mismatch:
        return text
    is_bool = isinstance(value, bool)
    is_allowed = bool in python_types if is_bool else isinstance(value, python_types)
    return value if is_allowed else text


def _allowed_types(schema: Mapping[str, Any], root: Mapping[str, Any]) -> set[str]:
    """Return the types that a schema allows, including `anyOf`, `oneOf` and local `$ref`."""
    types: set[str] = set()
    visited: set[int] = set()  # references may be circular
    stack = [schema]
    while stack:
        current = stack.pop()
        if id(current) in visited:
            continue
        visited.add(id(current))
        kind = current.get("type")
        types.update([kind] if isinstance(kind, str) else map(str, _as_sequence(kind)))
        stack.extend(map(_as_mapping, _as_sequence(current.get("anyOf"))))
        stack.extend(map(_as_mapping, _as_sequence(current.get("oneOf"))))
        stack.append(_resolve_reference(current.get("$ref"), root))
    return types


def _as_sequence(value: Any) -> Sequence[Any]:
    return cast("Sequence[Any]", value) if isinstance(value, list | tuple) else ()


_EMPTY: Mapping[str, Any] = {}


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else _EMPTY


def _resolve_reference(reference: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return _EMPTY
    target = root
    for key in reference.removeprefix("#/").split("/"):
        target = _as_mapping(target.get(key))
    return target
