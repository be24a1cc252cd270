"""The words of a CEL expression, as its own lexer finds them.

Only as far as is needed to count what an expression does and to point at a mistake in it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

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
    kind: str  # text, word, number or sign
    text: str
    start: int


def tokenize(source: str) -> list[Token]:
    """All of them but blanks and comments."""
    return [
        Token(match.lastgroup or "", match.group(), match.start())
        for match in _TOKEN.finditer(source)
        if match.lastgroup != "blank"
    ]
