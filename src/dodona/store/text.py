"""Text that every database takes. PostgreSQL has no NUL, and neither encodes half a character."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

Hide: TypeAlias = Callable[[str], str]  # takes known secrets out of a text


def storable(text: str) -> str:
    """The text, with what no database can hold made visible: NUL as ␀, half characters as �."""
    if "\0" in text:
        text = text.replace("\0", "\u2400")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def to_json(value: Any) -> str:
    """The value as JSON text."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return msgspec.json.encode(_mended(msgspec.to_builtins(value))).decode()


def _mended(value: Any) -> Any:
    """The value with half characters replaced, wherever they are."""
    match value:
        case str():
            return storable(value)
        case dict():
            return {storable(str(key)): _mended(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        case list() | tuple():
            return [_mended(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value


def from_json(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)
