"""The sections and keys that a file may contain, derived from its pydantic model."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, TypeGuard, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, Strict
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from dodona.documents.toml_lines import KeyPath

FIELD_ERROR_TYPE = "field_error"

# TOML has arrays but no tuples, so strict mode is off for the tuple itself.
NonEmptyStrings = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Strict(strict=False)]


class Section(BaseModel):
    """Base model of a section: strict types, no unknown keys, frozen."""

    # The key that a plain number sets when it is given instead of the section; "" if not allowed.
    shorthand_key: ClassVar[str] = ""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)


def field_error(message: str, hint: str = "", *, line: int = 0) -> PydanticCustomError:
    """Build an error for a validator to raise, with a message such as "must be a provider".

    `line` is for multi-line strings: the line of the value that has the error, from 1.
    """
    # The message is passed as a value, so that braces in it are not placeholders.
    return PydanticCustomError(
        FIELD_ERROR_TYPE, "{message}", {"message": message, "hint": hint, "line": line}
    )


_NAME = r"""(?P<name>[A-Za-z0-9_-]+|"[^"\\\x00-\x1f]*"|'[^'\x00-\x1f]*')"""
_FIRST = re.compile(_NAME)
_NEXT = re.compile(rf"\.{_NAME}|\[(?P<index>[0-9]{{1,9}})\]")


class ModelShape:
    """The type and the fields at each path of a file whose model is `root`."""

    def __init__(self, root: type[Section]) -> None:
        self._root = root

    def type_at(self, path: KeyPath) -> Any:
        """Return the type at this path; None if the model has nothing there."""
        current: Any = self._root
        for name in path:
            field = _fields(current).get(str(name))
            current = field.annotation if field else entry_type(current) or element_type(current)
            if current is None:
                return None
        return current

    def fields(self, path: KeyPath) -> Mapping[str, FieldInfo]:
        """Return the fields of the section at this path; empty if there is no section."""
        return _fields(self.type_at(path))


def is_table(value: Any) -> TypeGuard[dict[str, Any]]:
    """Return whether the value is a TOML table."""
    return isinstance(value, dict)


def unwrap_annotation(annotation: Any) -> Any:
    """Return the type without `| None` and without `Annotated`."""
    if get_origin(annotation) is Annotated:
        return unwrap_annotation(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return unwrap_annotation(
            next(part for part in get_args(annotation) if part is not NoneType)
        )
    return annotation


def section_type(annotation: Any) -> type[Section] | None:
    """Return the Section class of an annotation; None if it is not a section."""
    kind = unwrap_annotation(annotation)
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def entry_type(annotation: Any) -> Any:
    """Return the value type of a section with user-defined keys; None for other types."""
    kind = unwrap_annotation(annotation)
    return get_args(kind)[1] if get_origin(kind) is Mapping else None


def element_type(annotation: Any) -> Any:
    """Return the element type of an array, including `[[rules]]`; None for other types."""
    kind = unwrap_annotation(annotation)
    return get_args(kind)[0] if get_origin(kind) in (tuple, list) else None


def dotted_key(path: KeyPath) -> str:
    """Write a path as a dotted key: `prices."gpt-4.1".input`, `bindings[0].channel`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else json.dumps(part)
            text += f".{name}" if text else name
    return text


def parse_dotted_key(text: str) -> KeyPath | None:
    """Parse a key as `dotted_key` writes it; None if the text is not such a key."""
    path: list[str | int] = []
    match = _FIRST.match(text)
    while match:
        index = match.groupdict().get("index")
        path.append(match["name"].strip("\"'") if index is None else int(index))
        if match.end() == len(text):
            return tuple(path)
        match = _NEXT.match(text, match.end())
    return None


def _fields(annotation: Any) -> Mapping[str, FieldInfo]:
    section = section_type(annotation)
    return section.model_fields if section else {}
