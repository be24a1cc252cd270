"""JSON Schemas of type hints, as models read them most reliably: without references."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from types import UnionType
from typing import Annotated, Any, Final, Literal, TypeAlias, Union, cast, get_args, get_origin

import msgspec
from msgspec import Meta

from dodona.tools.signatures.json_values import is_pydantic_model

Schema: TypeAlias = dict[str, Any]

# What a type hint raises that cannot be resolved, or that msgspec does not support.
HINT_ERRORS: Final = (
    *(NameError, AttributeError, TypeError, ValueError, SyntaxError, KeyError, RecursionError),
    re.error,
)

_REF: Final = "#/$defs/"
_NUMBERS: Final = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length")


def add_bounds(hint: Any) -> Any:
    """Return a type hint with the bounds of pydantic and annotated_types as `msgspec.Meta`."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is None or origin is Literal:
        return hint
    if origin is Annotated:
        base, *metadata = arguments
        metas = [meta for each in metadata for meta in _metas(each)]
        return Annotated[(add_bounds(base), *metas)] if metas else add_bounds(base)
    converted = tuple(add_bounds(each) for each in arguments)
    if converted == arguments:
        return hint
    if origin in (Union, UnionType):
        return Union[converted]  # noqa: UP007 - the members are known only now
    return hint.copy_with(converted) if hasattr(hint, "copy_with") else origin[converted]


def _metas(metadata: object) -> Iterator[Meta]:
    """Yield the bounds of any metadata that names them like pydantic and annotated_types."""
    if isinstance(metadata, Meta):
        yield metadata
        return
    bounds: dict[str, Any] = {
        name: value
        for name in _NUMBERS
        if isinstance(value := getattr(metadata, name, None), int | float)
    }
    pattern = getattr(metadata, "pattern", None)
    texts = {
        "pattern": getattr(pattern, "pattern", pattern),  # it may be compiled
        "description": getattr(metadata, "description", None),
    }
    bounds |= {name: text for name, text in texts.items() if isinstance(text, str)}
    if bounds:
        yield Meta(**bounds)
    nested = getattr(metadata, "metadata", None)  # of a pydantic Field
    for each in cast("list[object]", nested) if isinstance(nested, list) else ():
        yield from _metas(each)


def build_schemas(hints: Iterable[Any]) -> tuple[list[Schema], dict[str, Schema]]:
    """Return the schema of each type hint, and the definitions that refer to themselves."""
    definitions: dict[str, Any] = {}

    def describe_custom(kind: type[Any]) -> Schema:
        if issubclass(kind, PurePath):
            return {"type": "string", "format": "path"}
        if not is_pydantic_model(kind):
            raise NotImplementedError(f"{kind.__name__} has no JSON Schema")  # msgspec asks for it
        prefix = re.sub(r"\W", "_", f"{kind.__module__}.{kind.__qualname__}.")
        schema: Schema = kind.model_json_schema(ref_template=f"{_REF}{prefix}{{model}}")
        nested: Schema = schema.pop("$defs", {})
        definitions.update({prefix + name: each for name, each in nested.items()})
        return schema

    schemas, components = msgspec.json.schema_components(
        hints, schema_hook=describe_custom, ref_template=f"{_REF}{{name}}"
    )
    for component in components.values():
        component.pop("title", None)
        if "description" in component:
            component["description"] = inspect.cleandoc(component["description"])
    inliner = _Inliner({**components, **definitions})
    return [inliner.inline(each) for each in schemas], inliner.recursive


class _Inliner:
    """Replaces references by their definitions, except those of recursive types."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self.recursive: dict[str, Schema] = {}  # definitions that are still referred to

    def inline(self, schema: Any) -> Any:
        """Return a schema without references that can be replaced."""
        if isinstance(schema, list):
            return [self.inline(each) for each in cast("list[Any]", schema)]
        if not isinstance(schema, dict):
            return schema
        parts = cast(Schema, schema)
        name = _referred_name(parts)
        rest = {key: self.inline(each) for key, each in parts.items()}
        if name is None:
            return rest
        if self._is_recursive(name):
            if name not in self.recursive:
                self.recursive[name] = {}  # in progress
                self.recursive[name] = self.inline(self._definitions[name])
            return rest
        del rest["$ref"]
        return {**self.inline(self._definitions[name]), **rest}

    def _is_recursive(self, name: str) -> bool:
        seen: set[str] = set()
        pending = [*_names_in(self._definitions[name])]
        while pending:
            if (each := pending.pop()) not in seen:
                seen.add(each)
                pending += _names_in(self._definitions[each])
        return name in seen


def _referred_name(schema: Schema) -> str | None:
    ref = schema.get("$ref")
    return ref.removeprefix(_REF) if isinstance(ref, str) else None


def _names_in(schema: Any) -> Iterator[str]:
    """Yield the names of all definitions to which a schema refers."""
    children: Iterable[Any] = ()
    if isinstance(schema, dict):
        parts = cast(Schema, schema)
        if (name := _referred_name(parts)) is not None:
            yield name
        children = parts.values()
    elif isinstance(schema, list):
        children = cast("list[Any]", schema)
    for each in children:
        yield from _names_in(each)
