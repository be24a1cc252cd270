"""Text that both databases accept: PostgreSQL rejects NUL, and both reject lone surrogates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from itertools import islice
from math import isfinite
from typing import Any, Final, TypeAlias, cast

import msgspec
from msgspec import UnsetType, structs

from dodona.core.domain.trust import Marks, encode_marks, redact_marks
from dodona.core.errors import BadRequest

Redact: TypeAlias = Callable[[str], str]  # removes known secrets from a text

# Limits of excerpts, for display.
MAX_TEXT_CHARS: Final = 2_000  # per text
MAX_ITEMS: Final = 50  # per list or map
MAX_DEPTH: Final = 8
_MAX_EXACT_INT: Final = 2**53
_MAX_INT_BITS: Final = 1_000  # Python refuses to format much longer numbers
_ELLIPSIS: Final = "…"


def to_storable(text: str) -> str:
    """Replace characters that no database stores: NUL by ␀, lone surrogates by �."""
    if "\0" in text:
        text = text.replace("\0", "\u2400")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def to_json(value: Any) -> str:
    """Encode a value as JSON text."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return msgspec.json.encode(map_strings(msgspec.to_builtins(value), to_storable)).decode()


def to_redacted_json(value: Any, redact: Redact) -> str:
    """Encode a value as JSON text without secrets that decodes to the same value otherwise.

    Raises what `map_strings` raises. Secrets are first searched in the whole unescaped text; only
    if there is one, value by value.
    """
    try:
        encoded = msgspec.json.encode(value)
        text = encoded.decode()
        plain = _unescape(text) if "\\" in text else text
        kind = type(value) if isinstance(value, msgspec.Struct) else Any
        if redact(plain) == plain and msgspec.json.decode(encoded, type=kind) == value:
            return text
    except (TypeError, ValueError, OverflowError):
        pass  # if the value is invalid, map_strings raises the precise error
    return to_json(map_strings(value, redact))


def redact_json(text: str, redact: Redact) -> str:
    """Remove secrets from the values in a JSON text."""
    plain = _unescape(text) if "\\" in text else text
    return text if redact(plain) == plain else to_json(map_strings(from_json(text), redact))


def _unescape(text: str) -> str:
    """Replace every escape in a JSON text by its character."""
    return text.encode("latin-1", "backslashreplace").decode("unicode_escape")


def map_strings(value: Any, change: Callable[[str], str]) -> Any:
    """Apply a function to every text in a value.

    Raises TypeError for values that JSON would not preserve: sets, bytes, NaN.
    """
    match value:
        case str():
            return change(value)
        case None | bool() | int() | Enum() | UnsetType():
            return value
        case float() if isfinite(value):
            return value
        case dict():
            items = cast("dict[object, Any]", value).items()
            return {_key(key, change): map_strings(item, change) for key, item in items}
        case list() | tuple():
            return [map_strings(item, change) for item in cast("list[Any]", value)]
        case msgspec.Struct():
            fields = structs.asdict(value).items()
            return structs.replace(value, **{k: map_strings(v, change) for k, v in fields})
        case _:
            raise TypeError(f"{value!r:.80} is neither text, number, list nor map")


def _key(key: object, change: Callable[[str], str]) -> str:
    if not isinstance(key, str):
        raise TypeError(f"the key {key!r:.80} of a map is not a text")
    return change(key)


def to_marks_json(marks: Marks, redact: Redact) -> str | None:
    """Encode marks for a column, without secrets in the names of sources; None for no marks."""
    return encode_marks(redact_marks(marks, redact))


def from_json(text: str | None) -> Any:
    """Decode a JSON text; None stays None."""
    return None if text is None else msgspec.json.decode(text)


def to_bounded_json(name: str, value: Any, redact: Redact, *, max_bytes: int) -> str:
    """Encode a value as JSON without secrets; raise BadRequest if that fails or is too large."""
    try:
        encoded = to_redacted_json(value, redact)
    except RecursionError as error:
        raise BadRequest(f"{name} is nested too deeply.") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise BadRequest(f"{name} cannot be encoded as JSON: {error}.") from error
    if (size := len(encoded.encode())) > max_bytes:
        raise BadRequest(f"{name} must have at most {max_bytes:,} bytes as JSON (got {size:,}).")
    return encoded


def check_name(name: str, text: str, *, max_chars: int) -> None:
    """Raise BadRequest if an identifier is empty or too long."""
    if not text:
        raise BadRequest(f"{name} must not be empty.")
    check_length(name, text, max_chars=max_chars)


def check_length(name: str, text: str, *, max_chars: int) -> None:
    """Raise BadRequest if a text is too long."""
    if len(text) > max_chars:
        raise BadRequest(f"{name} must have at most {max_chars:,} characters (got {len(text):,}).")


def excerpt(values: Mapping[str, Any], redact: Redact, *, max_chars: int) -> dict[str, Any]:
    """Return JSON-compatible values of about `max_chars` characters; … marks omissions."""
    return _ExcerptBuilder(redact, max_chars).cut_map(values, 0)


def shorten(text: str, redact: Redact) -> str:
    """Return a text, truncated at MAX_TEXT_CHARS."""
    return _ExcerptBuilder(redact, MAX_TEXT_CHARS).cut_text(text)


class _ExcerptBuilder:
    def __init__(self, redact: Redact, max_chars: int) -> None:
        self._redact = redact
        self._remaining = max_chars

    def cut_map(self, values: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in islice(values.items(), MAX_ITEMS):
            if self._remaining <= 0:
                break
            name = self.cut_text(str(key))  # before its value uses up the rest
            result[name] = self._cut_value(value, depth + 1)
        if len(result) < len(values):
            result[_ELLIPSIS] = f"{len(values) - len(result):,} more"
        return result

    def _cut_list(self, values: Iterable[Any], depth: int) -> list[Any]:
        items = list(values)
        result: list[Any] = []
        for value in items[:MAX_ITEMS]:
            if self._remaining <= 0:
                break
            result.append(self._cut_value(value, depth + 1))
        if len(result) < len(items):
            result.append(f"{_ELLIPSIS} {len(items) - len(result):,} more")
        return result

    def _cut_value(self, value: Any, depth: int) -> Any:
        self._remaining -= 20  # the most that a number takes, or the punctuation around a text
        match value:
            case str():
                return self.cut_text(value)
            case dict() if depth < MAX_DEPTH:
                return self.cut_map(cast("dict[Any, Any]", value), depth)
            case list() | tuple() if depth < MAX_DEPTH:
                return self._cut_list(cast("list[Any]", value), depth)
            case dict() | list() | tuple():
                return _ELLIPSIS
            case None | bool() | int() | float():
                return self._cut_number(value)
            case _:
                return self.cut_text(str(value))

    def _cut_number(self, value: float | None) -> Any:
        """Return a number unchanged if every JSON parser reads it exactly."""
        if isinstance(value, int) and abs(value) >= _MAX_EXACT_INT:
            return self.cut_text(str(value)) if value.bit_length() < _MAX_INT_BITS else _ELLIPSIS
        return value if value is None or isfinite(value) else str(value)

    def cut_text(self, text: str) -> str:
        # Redact first: half of a secret would not be recognised.
        text = to_storable(self._redact(text))
        length = max(0, min(MAX_TEXT_CHARS, self._remaining))
        self._remaining -= min(len(text), length)
        if len(text) <= length:
            return text
        return f"{text[:length]}{_ELLIPSIS} ({len(text) - length:,} more characters)"
