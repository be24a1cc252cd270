"""Text and JSON as every database takes them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dodona.store.db.text import from_json, map_strings, to_json, to_redacted_json, to_storable

TEXTS = st.text(st.characters(exclude_categories=())) | st.text("\0\ud83d\udc00a\\u0␀", max_size=12)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def is_storable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def mended(value: Any) -> Any:
    """What is expected to come back."""
    if isinstance(value, str):
        return to_storable(value)
    if isinstance(value, dict):
        return {to_storable(key): mended(item) for key, item in value.items()}
    if isinstance(value, list):
        return [mended(item) for item in value]
    return value


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", ""),
        ("ü 🌳 \u2028 \ufeff", "ü 🌳 \u2028 \ufeff"),
        ("a\0b", "a␀b"),
        ("a\ud83db", "a�b"),
        ("\udc00\ud83d", "��"),
        ("\ud83c\udf33", "🌳"),
        ("\ufeff\ud83d", "\ufeff�"),
        ("\\u0000", "\\u0000"),
    ],
)
def test_what_cannot_be_kept_is_made_visible(text: str, kept: str) -> None:
    """Halves that belong together become one character; all else is as it was."""
    assert to_storable(text) == kept


@given(TEXTS)
def test_any_text_can_be_kept(text: str) -> None:
    """Once made storable it stays as it is, and what was storable is not touched."""
    kept = to_storable(text)
    assert is_storable(kept)
    assert to_storable(kept) == kept
    if is_storable(text):
        assert kept == text


@given(VALUES)
def test_any_value_can_be_kept_as_json(value: Any) -> None:
    """It comes back as it was, but for what no database holds."""
    text = to_json(value)
    assert is_storable(text)
    assert from_json(text) == json.loads(text)
    assert mended(from_json(text)) == mended(value)


def test_nothing_is_nothing() -> None:
    assert from_json(None) is None
    assert from_json("null") is None


@given(VALUES, st.text('oak"\\\n\u00e9\U0001f333/u0', min_size=2, max_size=6))
def test_no_secret_is_left_in_json(value: Any, secret: str) -> None:
    """As if each text had been searched by itself, whatever JSON makes of the secret."""

    def hide(text: str) -> str:
        return text.replace(secret, "*")

    hidden = to_redacted_json({"a": value, "b": [f"<{secret}>", {secret: 1}]}, hide)
    assert from_json(hidden)["b"] == ["<*>", {"*": 1}]
    assert to_redacted_json([value], hide) == to_json(map_strings([value], hide))


@pytest.mark.parametrize(
    "value",
    [{1}, b"oak", float("nan"), float("inf"), {1: 2}, {None: 1}, object(), {"a": [{"b": ({2},)}]}],
    ids=lambda value: type(value).__name__,
)
def test_what_json_would_change_is_refused(value: Any) -> None:
    """Wherever it is: what is kept comes back as it was."""
    with pytest.raises(TypeError):
        to_redacted_json({"a": [value]}, str)


def test_a_tuple_is_kept_as_a_list() -> None:
    assert to_redacted_json({"a": (1, ("b",))}, str) == '{"a":[1,["b"]]}'
