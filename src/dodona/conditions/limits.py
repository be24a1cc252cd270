"""Limits on an expression, checked before it is compiled.

CEL's only loops are its macros, and the library stops them after 10,000 iterations. It does not
count the cost of an iteration: strings concatenated in each one grow without limit, and a regular
expression with counted repetitions takes milliseconds per match. So expressions that would
multiply such costs are refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from dodona.conditions.errors import error_at
from dodona.conditions.tokens import MACROS, Token
from dodona.conditions.values import MAX_LIST_LENGTH

MAX_EXPRESSION_CHARS: Final = 1_000
MAX_MACROS: Final = 4
MAX_PLUSES: Final = 8  # each may concatenate strings or lists
MAX_MATCHES: Final = 4
MAX_PATTERN_CHARS: Final = 100
MAX_MACRO_WORK: Final = 20_000  # tokens that macros evaluate, over all iterations

# A brace, including one written as an escape. Unicode classes take milliseconds to compile.
_COSTLY: Final = re.compile(r"\{|\\[0-7xXuUpP]")
_USE_A_TREE: Final = "Shorten the expression, or use a tree."


def check_limits(source: str, tokens: Sequence[Token]) -> None:
    """Raise ConfigError at the first token that exceeds a limit."""
    _LimitChecker(source, tokens).check()


class _LimitChecker:
    def __init__(self, source: str, tokens: Sequence[Token]) -> None:
        self._source = source
        self._tokens = tokens
        self._macros = self._macro_tokens = self._pluses = self._matches = 0
        self._open_brackets: list[bool] = []  # True for the bracket of a macro

    def check(self) -> None:
        for index, token in enumerate(self._tokens):
            if token.text in "([{":
                self._check_opening(index)
            elif token.text in ")]}":
                del self._open_brackets[-1:]
            elif token.text == "+":
                self._check_plus(token)
            self._macro_tokens += self._is_in_macro()
            work = self._macro_tokens * MAX_LIST_LENGTH * (1 + self._pluses)
            self._refuse_if(
                token, work > MAX_MACRO_WORK, "the macros evaluate too much for each list element."
            )

    def _is_in_macro(self) -> bool:
        return True in self._open_brackets

    def _refuse_if(
        self, token: Token, is_exceeded: object, message: str, hint: str = _USE_A_TREE
    ) -> None:
        if is_exceeded:
            raise error_at(self._source, token.start, message, hint)

    def _check_plus(self, token: Token) -> None:
        self._pluses += 1
        self._refuse_if(
            token,
            self._is_in_macro(),
            "'+' cannot be used inside a macro.",
            "Subtract on the other side instead.",
        )
        self._refuse_if(
            token, self._pluses > MAX_PLUSES, f"an expression can have at most {MAX_PLUSES} '+'."
        )

    def _check_opening(self, index: int) -> None:
        called = self._tokens[index - 1] if index and self._tokens[index].text == "(" else None
        is_member = index > 1 and self._tokens[index - 2].text == "."
        is_macro = called is not None and called.text in MACROS and is_member
        if called is not None and is_macro:
            self._macros += 1
            self._refuse_if(
                called, self._is_in_macro(), f"'{called.text}' cannot be nested in a macro."
            )
            self._refuse_if(
                called,
                self._macros > MAX_MACROS,
                f"an expression can have at most {MAX_MACROS} macros.",
            )
        elif called is not None and called.text == "matches":
            self._check_pattern(called, _last_argument(self._tokens, index))
        self._open_brackets.append(is_macro)

    def _check_pattern(self, called: Token, pattern: Token | None) -> None:
        """Check a regular expression. It must be a literal: a value could be any pattern."""
        self._matches += 1
        self._refuse_if(
            called,
            self._is_in_macro(),
            "'matches' cannot be used inside a macro.",
            "Use contains or startsWith.",
        )
        self._refuse_if(
            called,
            self._matches > MAX_MATCHES,
            f"an expression can have at most {MAX_MATCHES} patterns.",
        )
        if pattern is None:
            message = "a pattern must be a string literal."
            raise error_at(self._source, called.start, message, "Put it in quotes.")
        self._refuse_if(
            called,
            len(pattern.text) > MAX_PATTERN_CHARS,
            f"a pattern must have at most {MAX_PATTERN_CHARS} characters.",
        )
        self._refuse_if(
            called,
            _COSTLY.search(pattern.text),
            "a pattern cannot contain {…} or \\p.",
            "Write \\d\\d, not \\d{2}.",
        )


def pattern_tokens(tokens: Sequence[Token]) -> list[Token]:
    """Return the string literals that are used as regular expressions."""
    pairs = enumerate(pairwise(tokens), start=1)
    calls = [i for i, (name, sign) in pairs if (name.text, sign.text) == ("matches", "(")]
    return [pattern for call in calls if (pattern := _last_argument(tokens, call)) is not None]


def _last_argument(tokens: Sequence[Token], index: int) -> Token | None:
    """Return the last argument of a call, if it is a single string literal."""
    closing = _closing_index(tokens, index)
    last, before = tokens[closing - 1], tokens[closing - 2]
    return last if last.kind == "text" and before.text in ("(", ",") else None


def _closing_index(tokens: Sequence[Token], index: int) -> int:
    depth = 0
    for current in range(index, len(tokens)):
        depth += tokens[current].text in "([{"
        depth -= tokens[current].text in ")]}"
        if depth == 0:
            return current
    return len(tokens)
