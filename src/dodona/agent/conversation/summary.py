"""Conversation summaries: their parts, and the text format in which they are stored.

    - How are calls budgeted?: `Meter.reserve` reserves tokens before a call.
    Decisions:
    - Use PostgreSQL for clusters.
    Symbols: Meter, settle_cut
    Files: src/meter.py

A later summary builds on this one, so the text is parsed back. Text from an exchange has its own
line and is escaped, so that it cannot start one of the parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from dodona.agent.conversation.insights import information_score

MAX_NAMES: Final = 200  # of decisions, symbols and files, each
SYMBOLS_PERCENT: Final = 30  # of the tokens, at most
FILES_PERCENT: Final = 20

CountTokens: TypeAlias = Callable[[str], int]

_DECISIONS: Final = "Decisions:"
_SYMBOLS: Final = "Symbols:"
_FILES: Final = "Files:"
_HEADINGS: Final = (_DECISIONS, _SYMBOLS, _FILES)
_SENTENCE = re.compile(r"(?<=[.!?…。！？])\s+")
# Control characters, and those that change the text direction.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff]")


@dataclass(frozen=True, slots=True)
class ConversationSummary:
    """The parts of a summary; in each part the newest entry is last."""

    lines: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    @classmethod
    def parse(cls, content: str) -> ConversationSummary:
        """Parse a stored summary; a text without headings is all lines."""
        lines: list[str] = []
        decisions: list[str] = []
        parts: dict[str, str] = {}
        target = lines
        for line in content.splitlines():
            heading = next((heading for heading in _HEADINGS if line.startswith(heading)), None)
            if heading is None:
                target.append(line.removeprefix("- ") if target is decisions else line)
            elif heading == _DECISIONS:
                target = decisions
            else:
                parts[heading] = line.removeprefix(heading)
        return cls(
            tuple(line for line in lines if line.strip()),
            tuple(line for line in decisions if line.strip()),
            _split_names(parts.get(_SYMBOLS, "")),
            _split_names(parts.get(_FILES, "")),
        )

    def to_text(self) -> str:
        """Return the stored text form."""
        parts = list(self.lines)
        if self.decisions:
            parts += [_DECISIONS, *(f"- {decision}" for decision in self.decisions)]
        parts += [f"{_SYMBOLS} {', '.join(self.symbols)}"] if self.symbols else []
        parts += [f"{_FILES} {', '.join(self.files)}"] if self.files else []
        return "\n".join(parts)

    def trim_to(
        self, max_tokens: int, count: CountTokens, *, is_prose: bool
    ) -> ConversationSummary:
        """Trim the summary to a number of tokens. Decisions have priority, the newest first.

        Prose is cut at the end; of independent lines, the newest and most informative remain.
        """
        tokens_left = max_tokens - 4 * len(_HEADINGS)
        decisions = _newest_that_fit(self.decisions, tokens_left, count)
        tokens_left -= _token_cost(decisions, count)
        symbols = _newest_that_fit(
            self.symbols, min(tokens_left, max_tokens * SYMBOLS_PERCENT // 100), count
        )
        tokens_left -= _token_cost(symbols, count)
        files = _newest_that_fit(
            self.files, min(tokens_left, max_tokens * FILES_PERCENT // 100), count
        )
        tokens_left -= _token_cost(files, count)
        lines = (
            _trim_prose(self.lines, tokens_left, count)
            if is_prose
            else _most_informative(self.lines, tokens_left, count)
        )
        return ConversationSummary(lines, decisions, symbols, files)


def merge_names(existing: Iterable[str], added: Iterable[str]) -> tuple[str, ...]:
    """Merge names without duplicates, the newest last; the oldest over `MAX_NAMES` are dropped."""
    all_names = (name for names in (existing, added) for name in names)
    return tuple(dict.fromkeys(filter(str.strip, all_names)))[-MAX_NAMES:]


def sanitize_lines(text: str) -> tuple[str, ...]:
    """Split a text into summary lines: printable, and not to be confused with a heading."""
    lines = (_UNPRINTABLE.sub("", line).rstrip() for line in text.splitlines())
    return tuple(
        f"- {line}" if line.startswith(_HEADINGS) else line for line in lines if line.strip()
    )


def _split_names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.strip().split(", ") if name)


def _token_cost(items: Sequence[str], count: CountTokens) -> int:
    return sum(count(item) + 2 for item in items)


def _newest_that_fit(items: Sequence[str], max_tokens: int, count: CountTokens) -> tuple[str, ...]:
    """The newest items that fit, in their original order."""
    selected: list[str] = []
    for item in reversed(items):
        cost = count(item) + 2
        if cost <= max_tokens:
            max_tokens -= cost
            selected.append(item)
    return tuple(reversed(selected))


def _trim_prose(lines: Sequence[str], max_tokens: int, count: CountTokens) -> tuple[str, ...]:
    """The first lines that fit; of the next line, the first sentences that fit."""
    selected: list[str] = []
    for line in lines:
        cost = count(line) + 1
        if cost <= max_tokens:
            max_tokens -= cost
            selected.append(line)
            continue
        part = ""
        for sentence in _SENTENCE.split(line):
            longer = f"{part} {sentence}".strip()
            if count(longer) + 1 > max_tokens:
                break
            part = longer
        return (*selected, part) if part else tuple(selected)
    return tuple(selected)


def _most_informative(lines: Sequence[str], max_tokens: int, count: CountTokens) -> tuple[str, ...]:
    """The lines with the highest scores that fit; newer lines score higher."""

    def score(index: int) -> float:
        return information_score(lines[index]) + 4.0 * index / len(lines)

    selected: set[int] = set()
    for index in sorted(range(len(lines)), key=score, reverse=True):
        cost = count(lines[index]) + 1
        if cost <= max_tokens:
            max_tokens -= cost
            selected.add(index)
    return tuple(lines[index] for index in sorted(selected))
