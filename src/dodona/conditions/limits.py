"""What an expression may do, decided before it is compiled.

CEL has no loops but its macros, and the library stops them after 10,000 rounds. It does not count
what a round costs: texts that are added up in each grow without end, and a pattern with counted
repetitions takes milliseconds a match. So those are refused where they would multiply.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from dodona.conditions.tokens import Token
from dodona.conditions.values import MAX_LIST_LENGTH

MAX_EXPRESSION_CHARS: Final = 1_000  # characters
MAX_MACROS: Final = 4
MAX_PLUSES: Final = 8  # each may add a text, or a list to go through
MAX_MATCHES: Final = 4
MAX_PATTERN_CHARS: Final = 100
MAX_MACRO_WORK: Final = 20_000  # words that macros go through, all rounds together

# A brace, also one that hides in an escape; classes of Unicode take milliseconds to compile.
_COSTLY: Final = re.compile(r"\{|\\[0-7xXuUpP]")

MACROS: Final = frozenset({"all", "exists", "exists_one", "map", "filter"})


@dataclass(frozen=True, slots=True)
class LimitViolation:
    """What is too much, from where on, and what to do instead."""

    start: int
    message: str
    hint: str


@dataclass(slots=True)
class _TokenCounts:
    macros: int = 0
    macro_tokens: int = 0  # words within macros
    pluses: int = 0
    matches: int = 0
    open_brackets: list[str] = field(
        default_factory=list[str]
    )  # what each open parenthesis belongs to

    @property
    def is_in_macro(self) -> bool:
        return "macro" in self.open_brackets


def find_limit_violation(tokens: Sequence[Token]) -> LimitViolation | None:
    """The first thing an expression may not do, if any."""
    count = _TokenCounts()
    for index, token in enumerate(tokens):
        refused = _check_token(count, tokens, index)
        if refused is not None:
            return refused
        count.macro_tokens += count.is_in_macro
        work = count.macro_tokens * MAX_LIST_LENGTH * (1 + count.pluses)
        if work > MAX_MACRO_WORK:
            return LimitViolation(
                token.start, "this is too much to do for each member.", _USE_A_TREE
            )
    return None


_USE_A_TREE: Final = "Make it shorter, or let a tree decide."


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
                token.start, "'+' cannot be used within a macro.", "Subtract instead."
            )
        if count.pluses > MAX_PLUSES:
            return LimitViolation(
                token.start, f"there are more than {MAX_PLUSES} '+'.", _USE_A_TREE
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
                called.start, f"'{called.text}' stands within another.", _USE_A_TREE
            )
        if count.macros > MAX_MACROS:
            return LimitViolation(
                called.start, f"there are more than {MAX_MACROS} macros.", _USE_A_TREE
            )
        return None
    refused = _check_pattern(count, tokens, index) if _is_matches(tokens, index) else None
    count.open_brackets.append("call")
    return refused


def _check_pattern(
    count: _TokenCounts, tokens: Sequence[Token], index: int
) -> LimitViolation | None:
    """Patterns are texts that stand there: one that a value brings could be any."""
    start = tokens[index - 1].start
    count.matches += 1
    if count.is_in_macro:
        return LimitViolation(
            start, "'matches' cannot be used within a macro.", "Use contains or startsWith."
        )
    if count.matches > MAX_MATCHES:
        return LimitViolation(start, f"there are more than {MAX_MATCHES} patterns.", _USE_A_TREE)
    pattern = _last_argument(tokens, index)
    if pattern is None:
        return LimitViolation(start, "a pattern must be a text.", "Write it between quotes.")
    if len(pattern.text) > MAX_PATTERN_CHARS:
        return LimitViolation(
            start, f"a pattern must have at most {MAX_PATTERN_CHARS} characters.", _USE_A_TREE
        )
    if _COSTLY.search(pattern.text):
        return LimitViolation(
            start, "a pattern cannot have {…} or \\p.", "Write \\d\\d, not \\d{2}."
        )
    return None


def pattern_tokens(tokens: Sequence[Token]) -> list[Token]:
    """The texts that are patterns."""
    calls = [i for i, token in enumerate(tokens) if token.text == "(" and _is_matches(tokens, i)]
    return [pattern for call in calls if (pattern := _last_argument(tokens, call)) is not None]


def _is_matches(tokens: Sequence[Token], index: int) -> bool:
    return index > 0 and tokens[index - 1].text == "matches"


def _last_argument(tokens: Sequence[Token], index: int) -> Token | None:
    """The last argument of a call, when it is a text that stands alone."""
    closing = _closing_index(tokens, index)
    last, before = tokens[closing - 1], tokens[closing - 2]
    return last if last.kind == "text" and before.text in ("(", ",") else None


def _closing_index(tokens: Sequence[Token], index: int) -> int:
    depth = 0
    for place in range(index, len(tokens)):
        depth += tokens[place].text in "([{"
        depth -= tokens[place].text in ")]}"
        if depth == 0:
            return place
    return len(tokens)
