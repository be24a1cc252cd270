"""Limits on an expression, checked before it is compiled.

CEL's only loops are its macros, and the library stops them after 10,000 iterations. It does not
count the cost of an iteration: strings concatenated in each one grow without limit, and a regular
expression with counted repetitions takes milliseconds per match. So expressions that would
multiply such costs are refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from dodona.conditions.tokens import Token
from dodona.conditions.values import MAX_LIST_LENGTH

MAX_EXPRESSION_CHARS: Final = 1_000
MAX_MACROS: Final = 4
MAX_PLUSES: Final = 8  # each may concatenate strings or lists
MAX_MATCHES: Final = 4
MAX_PATTERN_CHARS: Final = 100
MAX_MACRO_WORK: Final = 20_000  # tokens that macros evaluate, over all iterations

# A brace, including one written as an escape. Unicode classes take milliseconds to compile.
_COSTLY: Final = re.compile(r"\{|\\[0-7xXuUpP]")

MACROS: Final = frozenset({"all", "exists", "exists_one", "map", "filter"})


@dataclass(frozen=True, slots=True)
class LimitViolation:
    """A limit that the expression exceeds, its offset, and a hint."""

    start: int
    message: str
    hint: str


@dataclass(slots=True)
class _TokenCounts:
    macros: int = 0
    macro_tokens: int = 0  # tokens inside macros
    pluses: int = 0
    matches: int = 0
    # "macro", "call" or "" for each open bracket
    open_brackets: list[str] = field(default_factory=list[str])

    @property
    def is_in_macro(self) -> bool:
        return "macro" in self.open_brackets


def find_limit_violation(tokens: Sequence[Token]) -> LimitViolation | None:
    """Return the first limit that the expression exceeds, if any."""
    count = _TokenCounts()
    for index, token in enumerate(tokens):
        violation = _check_token(count, tokens, index)
        if violation is not None:
            return violation
        count.macro_tokens += count.is_in_macro
        work = count.macro_tokens * MAX_LIST_LENGTH * (1 + count.pluses)
        if work > MAX_MACRO_WORK:
            return LimitViolation(
                token.start, "the macros evaluate too much for each list element.", _USE_A_TREE
            )
    return None


_USE_A_TREE: Final = "Shorten the expression, or use a tree."


def _check_token(count: _TokenCounts, tokens: Sequence[Token], index: int) -> LimitViolation | None:
    token = tokens[index]
    if token.text in "([{":
        return _check_opening(count, tokens, index)
    if token.text in ")]}":
        if count.open_brackets:
            count.open_brackets.pop()
        return None
    if token.text == "+":
        count.pluses += 1
        if count.is_in_macro:
            return LimitViolation(
                token.start,
                "'+' cannot be used inside a macro.",
                "Subtract on the other side instead.",
            )
        if count.pluses > MAX_PLUSES:
            return LimitViolation(
                token.start, f"an expression can have at most {MAX_PLUSES} '+'.", _USE_A_TREE
            )
    return None


def _check_opening(
    count: _TokenCounts, tokens: Sequence[Token], index: int
) -> LimitViolation | None:
    called = tokens[index - 1] if index and tokens[index].text == "(" else None
    if called is None or called.kind != "word":
        count.open_brackets.append("")
        return None
    is_member = index > 1 and tokens[index - 2].text == "."
    if called.text in MACROS and is_member:
        count.macros += 1
        is_nested = count.is_in_macro
        count.open_brackets.append("macro")
        if is_nested:
            return LimitViolation(
                called.start, f"'{called.text}' cannot be nested in a macro.", _USE_A_TREE
            )
        if count.macros > MAX_MACROS:
            return LimitViolation(
                called.start, f"an expression can have at most {MAX_MACROS} macros.", _USE_A_TREE
            )
        return None
    violation = _check_pattern(count, tokens, index) if _is_matches(tokens, index) else None
    count.open_brackets.append("call")
    return violation


def _check_pattern(
    count: _TokenCounts, tokens: Sequence[Token], index: int
) -> LimitViolation | None:
    """Check a regular expression. It must be a literal: a value could be any pattern."""
    start = tokens[index - 1].start
    count.matches += 1
    if count.is_in_macro:
        return LimitViolation(
            start, "'matches' cannot be used inside a macro.", "Use contains or startsWith."
        )
    if count.matches > MAX_MATCHES:
        return LimitViolation(
            start, f"an expression can have at most {MAX_MATCHES} patterns.", _USE_A_TREE
        )
    pattern = _last_argument(tokens, index)
    if pattern is None:
        return LimitViolation(start, "a pattern must be a string literal.", "Put it in quotes.")
    if len(pattern.text) > MAX_PATTERN_CHARS:
        return LimitViolation(
            start, f"a pattern must have at most {MAX_PATTERN_CHARS} characters.", _USE_A_TREE
        )
    if _COSTLY.search(pattern.text):
        return LimitViolation(
            start, "a pattern cannot contain {…} or \\p.", "Write \\d\\d, not \\d{2}."
        )
    return None


def pattern_tokens(tokens: Sequence[Token]) -> list[Token]:
    """Return the string literals that are used as regular expressions."""
    calls = [i for i, token in enumerate(tokens) if token.text == "(" and _is_matches(tokens, i)]
    return [pattern for call in calls if (pattern := _last_argument(tokens, call)) is not None]


def _is_matches(tokens: Sequence[Token], index: int) -> bool:
    return index > 0 and tokens[index - 1].text == "matches"


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
