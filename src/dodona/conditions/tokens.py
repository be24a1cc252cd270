"""A lexer for CEL, precise enough to check limits and to locate errors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

MACROS: Final = frozenset({"all", "exists", "exists_one", "map", "filter"})
_QUOTED: Final = "|".join(
    (
        r"[bB]?[rR]\"\"\"(?:(?!\"\"\").)*\"\"\"",
        r"[bB]?[rR]'''(?:(?!''').)*'''",
        r"[bB]?[rR]\"[^\"\n\r]*\"",
        r"[bB]?[rR]'[^'\n\r]*'",
        r"[bB]?\"\"\"(?:\\.|(?!\"\"\")[^\\])*\"\"\"",
        r"[bB]?'''(?:\\.|(?!''')[^\\])*'''",
        r"[bB]?\"(?:\\.|[^\"\\\n\r])*\"",
        r"[bB]?'(?:\\.|[^'\\\n\r])*'",
    )
)
_TOKEN: Final = re.compile(
    rf"(?P<text>{_QUOTED})"
    r"|(?P<word>[A-Za-z_]\w*|`[^`\n]*`)"
    r"|(?P<number>\d[\w.]*)"
    r"|(?P<blank>//[^\n]*|\s+)"
    r"|(?P<sign>&&|\|\||[<>=!]=|.)",
    re.DOTALL | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Token:
    """One token and its offset in the expression."""

    kind: str  # text, word, number or sign
    text: str
    start: int


def tokenize(source: str) -> list[Token]:
    """Return the tokens of an expression, without whitespace and comments."""
    return [
        Token(match.lastgroup or "", match.group(), match.start())
        for match in _TOKEN.finditer(source)
        if match.lastgroup != "blank"
    ]
