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
from dodona.conditions.values import LONGEST_LIST

LONGEST: Final = 1_000  # characters
MOST_MACROS: Final = 4
MOST_PLUSES: Final = 8  # each may add a text, or a list to go through
MOST_MATCHES: Final = 4
LONGEST_PATTERN: Final = 100
MOST_WORK: Final = 20_000  # words that macros go through, all rounds together

# A brace, also one that hides in an escape; classes of Unicode take milliseconds to compile.
_COSTLY: Final = re.compile(r"\{|\\[0-7xXuUpP]")

MACROS: Final = frozenset({"all", "exists", "exists_one", "map", "filter"})


@dataclass(frozen=True, slots=True)
class Refusal:
    """What is too much, from where on, and what to do instead."""

    start: int
    message: str
    hint: str


@dataclass(slots=True)
class _Count:
    macros: int = 0
    inside: int = 0  # words within macros
    pluses: int = 0
    matches: int = 0
    open: list[str] = field(default_factory=list[str])  # what each open parenthesis belongs to

    @property
    def is_inside(self) -> bool:
        return "macro" in self.open


def refusal(found: Sequence[Token]) -> Refusal | None:
    """The first thing an expression may not do, if any."""
    count = _Count()
    for index, token in enumerate(found):
        refused = _look(count, found, index)
        if refused is not None:
            return refused
        count.inside += count.is_inside
        work = count.inside * LONGEST_LIST * (1 + count.pluses)
        if work > MOST_WORK:
            return Refusal(token.start, "this is too much to do for each member.", _USE_A_TREE)
    return None


_USE_A_TREE: Final = "Make it shorter, or let a tree decide."


def _look(count: _Count, found: Sequence[Token], index: int) -> Refusal | None:
    token = found[index]
    if token.text in "([{":
        return _opened(count, found, index)
    if token.text in ")]}":
        if count.open:
            count.open.pop()
        return None
    if token.text == "+":
        count.pluses += 1
        if count.is_inside:
            return Refusal(token.start, "'+' cannot be used within a macro.", "Subtract instead.")
        if count.pluses > MOST_PLUSES:
            return Refusal(token.start, f"there are more than {MOST_PLUSES} '+'.", _USE_A_TREE)
    return None


def _opened(count: _Count, found: Sequence[Token], index: int) -> Refusal | None:
    called = found[index - 1] if index and found[index].text == "(" else None
    if called is None or called.kind != "word":
        count.open.append("")
        return None
    is_member = index > 1 and found[index - 2].text == "."
    if called.text in MACROS and is_member:
        count.macros += 1
        is_nested = count.is_inside
        count.open.append("macro")
        if is_nested:
            return Refusal(called.start, f"'{called.text}' stands within another.", _USE_A_TREE)
        if count.macros > MOST_MACROS:
            return Refusal(called.start, f"there are more than {MOST_MACROS} macros.", _USE_A_TREE)
        return None
    refused = _pattern(count, found, index) if _is_matches(found, index) else None
    count.open.append("call")
    return refused


def _pattern(count: _Count, found: Sequence[Token], index: int) -> Refusal | None:
    """Patterns are texts that stand there: one that a value brings could be any."""
    start = found[index - 1].start
    count.matches += 1
    if count.is_inside:
        return Refusal(
            start, "'matches' cannot be used within a macro.", "Use contains or startsWith."
        )
    if count.matches > MOST_MATCHES:
        return Refusal(start, f"there are more than {MOST_MATCHES} patterns.", _USE_A_TREE)
    pattern = _argument(found, index)
    if pattern is None:
        return Refusal(start, "a pattern must be a text.", "Write it between quotes.")
    if len(pattern.text) > LONGEST_PATTERN:
        return Refusal(
            start, f"a pattern must have at most {LONGEST_PATTERN} characters.", _USE_A_TREE
        )
    if _COSTLY.search(pattern.text):
        return Refusal(start, "a pattern cannot have {…} or \\p.", "Write \\d\\d, not \\d{2}.")
    return None


def patterns(found: Sequence[Token]) -> list[Token]:
    """The texts that are patterns."""
    calls = [i for i, token in enumerate(found) if token.text == "(" and _is_matches(found, i)]
    return [pattern for call in calls if (pattern := _argument(found, call)) is not None]


def _is_matches(found: Sequence[Token], index: int) -> bool:
    return index > 0 and found[index - 1].text == "matches"


def _argument(found: Sequence[Token], index: int) -> Token | None:
    """The last argument of a call, when it is a text that stands alone."""
    closing = _closing(found, index)
    last, before = found[closing - 1], found[closing - 2]
    return last if last.kind == "text" and before.text in ("(", ",") else None


def _closing(found: Sequence[Token], index: int) -> int:
    depth = 0
    for place in range(index, len(found)):
        depth += found[place].text in "([{"
        depth -= found[place].text in ")]}"
        if depth == 0:
            return place
    return len(found)
