"""The gist of earlier exchanges: a summary in its parts, and the text that is kept of it.

    - How are calls budgeted?: `Meter.reserve` puts tokens aside before a call.
    Decisions:
    - Use PostgreSQL for clusters.
    Symbols: Meter, settle_cut
    Files: src/meter.py
    From outside: web

A later summary is made from this one, so the text reads back. Whatever was said in an exchange
stands in its own line, and cannot begin one of the parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from dodona.agent.conversation.insights import information_score
from dodona.core.messages import Origin

MAX_NAMES: Final = 200  # decisions, symbols and files, each
SYMBOLS_PERCENT: Final = 30  # percent of the room, at most
FILES_PERCENT: Final = 20

CountTokens: TypeAlias = Callable[[str], int]

_DECISIONS: Final = "Decisions:"
_SYMBOLS: Final = "Symbols:"
_FILES: Final = "Files:"
_UNTRUSTED: Final = "From outside:"
_HEADINGS: Final = (_DECISIONS, _SYMBOLS, _FILES, _UNTRUSTED)
_SENTENCE = re.compile(r"(?<=[.!?…。！？])\s+")
# Control characters, and those that turn the direction of text around.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff]")


@dataclass(frozen=True, slots=True)
class ConversationSummary:
    """What a summary says. Of each part the newest is last."""

    lines: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    symbols: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    untrusted: frozenset[Origin] = frozenset()  # whose texts were read on the way

    @classmethod
    def parse(cls, content: str) -> ConversationSummary:
        """The parts of a kept summary; of a text that somebody else wrote, all of it is lines."""
        lines: list[str] = []
        decisions: list[str] = []
        parts: dict[str, str] = {}
        into = lines
        for line in content.splitlines():
            head = next((head for head in _HEADINGS if line.startswith(head)), None)
            if head is None:
                into.append(line.removeprefix("- ") if into is decisions else line)
            elif head == _DECISIONS:
                into = decisions
            else:
                parts[head] = line.removeprefix(head)
        known = {origin.value: origin for origin in Origin}
        return cls(
            tuple(line for line in lines if line.strip()),
            tuple(line for line in decisions if line.strip()),
            _split_names(parts.get(_SYMBOLS, "")),
            _split_names(parts.get(_FILES, "")),
            frozenset(
                known[name] for name in _split_names(parts.get(_UNTRUSTED, "")) if name in known
            ),
        )

    def to_text(self) -> str:
        parts = list(self.lines)
        if self.decisions:
            parts += [_DECISIONS, *(f"- {decision}" for decision in self.decisions)]
        parts += [f"{_SYMBOLS} {', '.join(self.symbols)}"] if self.symbols else []
        parts += [f"{_FILES} {', '.join(self.files)}"] if self.files else []
        whose = sorted(origin.value for origin in self.untrusted)
        parts += [f"{_UNTRUSTED} {', '.join(whose)}"] if whose else []
        return "\n".join(parts)

    def trim_to(
        self, max_tokens: int, count: CountTokens, *, is_prose: bool
    ) -> ConversationSummary:
        """What of it fits into so many tokens: decisions are the last to go, the newest last.

        A text that is told goes on as far as there is room; of lines that stand for themselves
        the newest and most telling are kept.
        """
        room = (
            max_tokens
            - count(ConversationSummary(untrusted=self.untrusted).to_text())
            - 4 * len(_HEADINGS)
        )
        decisions = _newest_that_fit(self.decisions, room, count)
        room -= _token_cost(decisions, count)
        symbols = _newest_that_fit(
            self.symbols, min(room, max_tokens * SYMBOLS_PERCENT // 100), count
        )
        room -= _token_cost(symbols, count)
        files = _newest_that_fit(self.files, min(room, max_tokens * FILES_PERCENT // 100), count)
        room -= _token_cost(files, count)
        lines = (
            _trim_prose(self.lines, room, count)
            if is_prose
            else _most_informative(self.lines, room, count)
        )
        return ConversationSummary(lines, decisions, symbols, files, self.untrusted)


def merge_names(existing: Iterable[str], added: Iterable[str]) -> tuple[str, ...]:
    """Each once, the newest last; the oldest make room."""
    named = (name for names in (existing, added) for name in names)
    return tuple(dict.fromkeys(filter(str.strip, named)))[-MAX_NAMES:]


def sanitize_lines(text: str) -> tuple[str, ...]:
    """A text as lines of a gist: printable, and none that would pass for the head of a part."""
    lines = (_UNPRINTABLE.sub("", line).rstrip() for line in text.splitlines())
    return tuple(
        f"- {line}" if line.startswith(_HEADINGS) else line for line in lines if line.strip()
    )


def _split_names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.strip().split(", ") if name)


def _token_cost(items: Sequence[str], count: CountTokens) -> int:
    return sum(count(item) + 2 for item in items)


def _newest_that_fit(items: Sequence[str], room: int, count: CountTokens) -> tuple[str, ...]:
    """The newest that fit, in their order."""
    kept: list[str] = []
    for item in reversed(items):
        cost = count(item) + 2
        if cost <= room:
            room -= cost
            kept.append(item)
    return tuple(reversed(kept))


def _trim_prose(lines: Sequence[str], room: int, count: CountTokens) -> tuple[str, ...]:
    """From the beginning on; of the line that is too long the sentences that fit."""
    kept: list[str] = []
    for line in lines:
        cost = count(line) + 1
        if cost <= room:
            room -= cost
            kept.append(line)
            continue
        part = ""
        for sentence in _SENTENCE.split(line):
            longer = f"{part} {sentence}".strip()
            if count(longer) + 1 > room:
                break
            part = longer
        return (*kept, part) if part else tuple(kept)
    return tuple(kept)


def _most_informative(lines: Sequence[str], room: int, count: CountTokens) -> tuple[str, ...]:
    def worth(place: int) -> float:
        return information_score(lines[place]) + 4.0 * place / len(lines)

    kept: set[int] = set()
    for place in sorted(range(len(lines)), key=worth, reverse=True):
        cost = count(lines[place]) + 1
        if cost <= room:
            room -= cost
            kept.add(place)
    return tuple(lines[place] for place in sorted(kept))
