"""The sections and keys that a file may have, as its pydantic model tells them."""

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

FIELD_ERROR_TYPE = "said"

# TOML knows arrays and no tuples.
NonEmptyStrings = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Strict(strict=False)]


class Section(BaseModel):
    """Nothing is converted, nothing unknown is taken, nothing changes."""

    # The key that a plain number in the place of the whole section is for, if it may stand there.
    shorthand_key: ClassVar[str] = ""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)


def field_error(message: str, hint: str = "", *, line: int = 0) -> PydanticCustomError:
    """A mistake in words of ours, for a validator to raise: "must be a provider", and a hint.

    With `line`, the value is a text that is wrong there, counted from 1.
    """
    # The words go in as values: braces in them are no placeholders.
    return PydanticCustomError(
        FIELD_ERROR_TYPE, "{message}", {"message": message, "hint": hint, "line": line}
    )


_NAME = r"""(?P<name>[A-Za-z0-9_-]+|"[^"\\\x00-\x1f]*"|'[^'\x00-\x1f]*')"""
_FIRST = re.compile(_NAME)
_NEXT = re.compile(rf"\.{_NAME}|\[(?P<place>[0-9]{{1,9}})\]")


class ModelShape:
    """What is known at a path, and of which type; `root` is the whole file's."""

    def __init__(self, root: type[Section]) -> None:
        self._root = root

    def type_at(self, path: KeyPath) -> Any:
        """The type at this path; None when there is nothing."""
        found: Any = self._root
        for name in path:
            field = _fields(found).get(str(name))
            found = field.annotation if field else entry_type(found) or element_type(found)
            if found is None:
                return None
        return found

    def fields(self, path: KeyPath) -> Mapping[str, FieldInfo]:
        """What may stand in the section at this path; nothing where there is none."""
        return _fields(self.type_at(path))


def is_table(value: Any) -> TypeGuard[dict[str, Any]]:
    """Is this a section, as tomllib reads one?"""
    return isinstance(value, dict)


def unwrap_annotation(annotation: Any) -> Any:
    """The type without `| None` and without what `Annotated` adds."""
    if get_origin(annotation) is Annotated:
        return unwrap_annotation(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return unwrap_annotation(
            next(part for part in get_args(annotation) if part is not NoneType)
        )
    return annotation


def section_type(annotation: Any) -> type[Section] | None:
    found = unwrap_annotation(annotation)
    return found if isinstance(found, type) and issubclass(found, Section) else None


def entry_type(annotation: Any) -> Any:
    """The type of a named entry, where a section's keys are the user's own; else None."""
    found = unwrap_annotation(annotation)
    return get_args(found)[1] if get_origin(found) is Mapping else None


def element_type(annotation: Any) -> Any:
    """The type of what an array holds, `[[rules]]` too; None where it is no array."""
    found = unwrap_annotation(annotation)
    return get_args(found)[0] if get_origin(found) in (tuple, list) else None


def dotted_key(path: KeyPath) -> str:
    """As it is written in TOML: `prices."gpt-4.1".input`, `bindings[0].channel`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else json.dumps(part)
            text += f".{name}" if text else name
    return text


def parse_dotted_key(text: str) -> KeyPath | None:
    """The path that `dotted` writes so; None where it is none."""
    path: list[str | int] = []
    found = _FIRST.match(text)
    while found:
        place = found.groupdict().get("place")
        path.append(found["name"].strip("\"'") if place is None else int(place))
        if found.end() == len(text):
            return tuple(path)
        found = _NEXT.match(text, found.end())
    return None


def _fields(annotation: Any) -> Mapping[str, FieldInfo]:
    found = section_type(annotation)
    return found.model_fields if found else {}
