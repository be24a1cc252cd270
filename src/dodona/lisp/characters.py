"""How an error speaks of a character, and of a piece of text that may be very long."""

from __future__ import annotations

import unicodedata

_LONGEST = 40
_UNNAMED = {"Cc": "CONTROL CHARACTER", "Cs": "LONE SURROGATE"}
# What word processors make of plain quotes and dashes.
_LOOK_ALIKES = {
    **dict.fromkeys("“”„«»", '"'),
    **dict.fromkeys("‘’‚´", "'"),
    **dict.fromkeys("–—−", "-"),
}


def name_of(character: str) -> str:
    """`'“' (U+201C LEFT DOUBLE QUOTATION MARK)`; one that cannot be shown is only named."""
    unnamed = _UNNAMED.get(unicodedata.category(character), "WITHOUT A NAME")
    full = f"U+{ord(character):04X} {unicodedata.name(character, unnamed)}"
    return f"'{character}' ({full})" if character.isprintable() else full


def instead_of(character: str) -> str:
    """A sentence that gives the plain character this one looks like, or nothing."""
    plain = _LOOK_ALIKES.get(character) or unicodedata.normalize("NFKC", character)
    if plain == character or len(plain) > 1 or not plain.isascii():
        return ""
    return "Write a plain space instead." if plain == " " else f"Write a plain {plain} instead."


def abbreviated(text: str) -> str:
    """The text, or its beginning and an ellipsis."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
