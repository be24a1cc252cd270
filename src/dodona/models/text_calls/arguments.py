"""The tools that were offered, and the arguments of their calls as JSON text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, cast

from dodona.core.messages import ToolSpec
from dodona.models.text_calls.cursor import Mismatch

ParsedCall = tuple[str, str]  # the tool's name and its arguments as JSON text

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
    """The tools of a request; only they can be called."""

    def __init__(self, tools: Iterable[ToolSpec]) -> None:
        self._tools = {tool.name: tool for tool in tools}

    def check_name(self, name: str) -> str:
        if name not in self._tools:
            raise Mismatch
        return name

    def parse_calls(self, text: str, *, arguments_optional: bool) -> list[ParsedCall]:
        """One call or a list of calls: `name` and `arguments`, which some call `parameters`."""
        found = _decode(text)
        calls = cast("list[Any]", found if isinstance(found, list) else [found])
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
        """A call whose arguments are a JSON object."""
        arguments = _decode(text)
        if not isinstance(arguments, dict):
            raise Mismatch
        return self.check_name(name), _encode(cast("dict[str, Any]", arguments))

    def parse_text_arguments(self, name: str, values: Mapping[str, str]) -> ParsedCall:
        """A call whose arguments are bare text: the tool's schema says what they mean."""
        schema = self._tools[name].parameters
        properties = _as_mapping(schema.get("properties"))
        typed = {key: _convert(value, properties.get(key), schema) for key, value in values.items()}
        return name, _encode(typed)


def _decode(text: str) -> Any:
    """Not strict: models put line breaks into strings as they are."""
    try:
        return json.loads(text, strict=False, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        raise Mismatch from None


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(constant)


def _encode(arguments: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()  # half a surrogate pair cannot go over a wire
    except (ValueError, RecursionError):
        raise Mismatch from None
    return text


def _convert(text: str, schema: Any, root: Mapping[str, Any]) -> Any:
    """The value that the schema asks for; the text itself if it may be or can only be text."""
    types = _allowed_types(_as_mapping(schema), root)
    wanted = tuple(python for name in types for python in _PYTHON_TYPES.get(name, ()))
    if "string" in types or not wanted:
        return text
    stripped = text.strip()
    try:
        value: Any = (
            _PYTHON_LITERALS[stripped] if stripped in _PYTHON_LITERALS else _decode(stripped)
        )
    except Mismatch:
        return text
    is_wanted = bool in wanted if isinstance(value, bool) else isinstance(value, wanted)
    return value if is_wanted else text


def _allowed_types(schema: Mapping[str, Any], root: Mapping[str, Any]) -> set[str]:
    """The types a schema allows, also through `anyOf`, `oneOf` and references within the tool."""
    found: set[str] = set()
    seen: set[int] = set()  # a tool's author may write circles
    ahead = [schema]
    while ahead:
        here = ahead.pop()
        if id(here) in seen:
            continue
        seen.add(id(here))
        named = here.get("type")
        found.update([named] if isinstance(named, str) else map(str, _as_sequence(named)))
        ahead.extend(map(_as_mapping, _as_sequence(here.get("anyOf"))))
        ahead.extend(map(_as_mapping, _as_sequence(here.get("oneOf"))))
        ahead.append(_resolve_reference(here.get("$ref"), root))
    return found


def _as_sequence(value: Any) -> Sequence[Any]:
    return cast("Sequence[Any]", value) if isinstance(value, list | tuple) else ()


_EMPTY: Mapping[str, Any] = {}


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else _EMPTY


def _resolve_reference(reference: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return _EMPTY
    found = root
    for key in reference.removeprefix("#/").split("/"):
        found = _as_mapping(found.get(key))
    return found
