"""Formats the keys of TOML sections as tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic.fields import FieldInfo

from generating.writing import table

_SIGNS = {Gt: ">", Ge: "≥", Le: "≤"}
_WORDS = {str: "string", int: "integer", float: "number", bool: "`true` or `false`"}


def keys(section: type[Any], meanings: Mapping[str, str] | None = None) -> str:
    """Format a table with a row per key, described by its field or by `meanings`."""
    rows: list[tuple[str, ...]] = []
    for name, field in section.model_fields.items():
        text = field.description or (meanings or {})[name]
        rows.append((f"`{name}`", _takes(field.annotation, field.metadata), _default(field), text))
    return table(("key", "type", "default", ""), rows)


def _takes(hint: Any, metadata: list[Any]) -> str:
    origin, inside = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _takes(inside[0], [*metadata, *_flat(inside[1:])])
    if origin in (Union, UnionType):
        parts = [each for each in inside if each is not type(None)]
        types = dict.fromkeys(_takes(each, metadata) for each in parts)
        return " or ".join(types)
    if origin is Literal:
        return ", ".join(f"`{choice}`" for choice in inside)
    if hint is Any:
        return "any value"
    if origin is tuple:
        return "list of strings"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "section"
    limits = [_limit(each) for each in metadata if type(each) in _SIGNS]
    return " ".join([_WORDS[hint], " and ".join(limits)]).strip()


def _limit(limit: Any) -> str:
    kind = type(limit)
    return f"{_SIGNS[kind]} {getattr(limit, kind.__name__.lower()):g}"


def _flat(metadata: tuple[Any, ...]) -> list[Any]:
    flat: list[Any] = []
    for each in metadata:
        flat += each.metadata if isinstance(each, FieldInfo) else [each]
    return flat


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if field.default is None or isinstance(field.default, Mapping):
        return ""
    return f"`{json.dumps(field.default)}`"
