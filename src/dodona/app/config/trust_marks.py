"""Marks on settings: which values a config file may set before the user trusts it.

A file that Dodona finds in the current folder may come from a stranger, as in a cloned repository.
A setting without a mark whose value is text needs trust, and a test fails until it has a mark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic.fields import FieldInfo


class TrustKind(Enum):
    """Which values need trust."""

    NONE = auto()
    EVERY = auto()  # except the default
    OUTSIDE_PATH = auto()  # paths that lead out of the folder of the file
    MODEL = auto()  # the model of the provider `scripted`, which is a path
    PROVIDER = auto()  # beside a key in a variable, which could be that of another provider


@dataclass(frozen=True, slots=True)
class TrustMark:
    """`action` completes "would …": it says what the file could do with the setting."""

    kind: TrustKind
    action: str = ""


_OUTSIDE: Final = "use a path outside the file's folder"

FREE: Final = TrustMark(TrustKind.NONE)
INNER_PATH: Final = TrustMark(TrustKind.OUTSIDE_PATH, _OUTSIDE)
MODEL_OR_INNER_PATH: Final = TrustMark(TrustKind.MODEL, _OUTSIDE)
PROVIDER: Final = TrustMark(TrustKind.PROVIDER, "send your API key to a provider that it chooses")
UNMARKED: Final = TrustMark(TrustKind.EVERY, "change this setting")


def needs_trust(action: str) -> TrustMark:
    """Return the mark of a setting whose every value needs trust, except the default."""
    return TrustMark(TrustKind.EVERY, action)


def trust_mark(field: FieldInfo) -> TrustMark | None:
    """Return the mark of a setting, on the field itself or in its type."""
    marks = (each for each in (*field.metadata, *_metadata(field.annotation)))
    return next((each for each in marks if isinstance(each, TrustMark)), None)


def holds_text(annotation: Any) -> bool:
    """Whether a value of this type can be, or contain, any text."""
    return annotation is str or any(map(holds_text, get_args(annotation)))


def _metadata(annotation: Any) -> Iterator[Any]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from arguments[1:]
        arguments = arguments[:1]
    if origin in (Annotated, Union, UnionType, tuple):
        for each in arguments:
            yield from _metadata(each)
