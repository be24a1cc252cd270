"""Text that every database takes. PostgreSQL has no NUL, and neither encodes lone surrogates."""

from __future__ import annotations

import re
from typing import Any

import msgspec

_ESCAPED_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")


def storable(text: str) -> str:
    """The text, with what no database can hold made visible: NUL as ␀, half characters as �."""
    if "\0" in text:
        text = text.replace("\0", "\u2400")
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def to_json(value: Any) -> str:
    """The value as JSON text that both databases take."""
    try:
        text = msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        text = msgspec.json.encode(_mended(value)).decode()
    return _ESCAPED_NUL.sub(r"\1\\u2400", text) if "\\u0000" in text else text


def _mended(value: Any) -> Any:
    """The value with half characters replaced, wherever they are."""
    plain = msgspec.to_builtins(value)
    if isinstance(plain, str):
        return storable(plain)
    if isinstance(plain, dict):
        return {storable(str(key)): _mended(item) for key, item in plain.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(plain, list | tuple):
        return [_mended(item) for item in plain]  # pyright: ignore[reportUnknownVariableType]
    return plain


def from_json(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)
