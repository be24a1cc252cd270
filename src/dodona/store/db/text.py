"""Text that every database takes. PostgreSQL has no NUL, and neither encodes half a character."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any, TypeAlias, cast

import msgspec

from dodona.core.errors import BadRequest

Redact: TypeAlias = Callable[[str], str]  # takes known secrets out of a text


def to_storable(text: str) -> str:
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
        return msgspec.json.encode(map_strings(msgspec.to_builtins(value), to_storable)).decode()


def to_redacted_json(value: Any, redact: Redact) -> str:
    """The value as JSON text that gives the same back, but for the secrets in it.

    Raises what `changed` raises. Secrets are looked for in the whole text at once, as it is
    without the escapes of JSON; only where that finds one, value by value.
    """
    try:
        encoded = msgspec.json.encode(value)
        text = encoded.decode()
        plain = _unescape(text) if "\\" in text else text
        if redact(plain) == plain and msgspec.json.decode(encoded) == value:
            return text
    except (TypeError, ValueError, OverflowError):
        pass  # what is wrong, if anything, is told below
    return to_json(map_strings(value, redact))


def redact_value(value: Any, redact: Redact) -> Any:
    """The value without the secrets in it; itself when it holds none."""
    text = to_json(value)
    plain = _unescape(text) if "\\" in text else text
    return value if redact(plain) == plain else map_strings(value, redact)


def _unescape(text: str) -> str:
    """A text of JSON with every escape replaced by what it stands for."""
    return text.encode("latin-1", "backslashreplace").decode("unicode_escape")


def map_strings(value: Any, change: Callable[[str], str]) -> Any:
    """The value with every text in it changed.

    Raises TypeError for what JSON would give back as something else: sets, bytes, not a number.
    """
    match value:
        case str():
            return change(value)
        case None | bool() | int():
            return value
        case float() if isfinite(value):
            return value
        case dict():
            items = cast("dict[object, Any]", value).items()
            return {_key(key, change): map_strings(item, change) for key, item in items}
        case list() | tuple():
            return [map_strings(item, change) for item in cast("list[Any]", value)]
        case _:
            raise TypeError(f"{value!r:.80} is neither text, number, list nor map")


def _key(key: object, change: Callable[[str], str]) -> str:
    if not isinstance(key, str):
        raise TypeError(f"the key {key!r:.80} of a map is no text")
    return change(key)


def from_json(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


def to_bounded_json(name: str, value: Any, redact: Redact, *, max_bytes: int) -> str:
    """The value as JSON text without secrets; BadRequest when it is none, or has too many bytes."""
    try:
        written = to_redacted_json(value, redact)
    except RecursionError as error:
        raise BadRequest(f"{name} is nested too deeply.") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise BadRequest(f"{name} cannot be written as JSON: {error}.") from error
    if (size := len(written.encode())) > max_bytes:
        raise BadRequest(f"{name} must have at most {max_bytes:,} bytes as JSON (got {size:,}).")
    return written


def check_name(name: str, text: str, *, max_chars: int) -> None:
    """Raise when something that others are to be found by is empty or too long."""
    if not text:
        raise BadRequest(f"{name} must not be empty.")
    check_length(name, text, max_chars=max_chars)


def check_length(name: str, text: str, *, max_chars: int) -> None:
    if len(text) > max_chars:
        raise BadRequest(f"{name} must have at most {max_chars:,} characters (got {len(text):,}).")
