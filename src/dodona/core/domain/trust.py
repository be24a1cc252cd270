"""Marks: the untrusted sources that a text comes from.

A text has an origin. The text of untrusted origins may contain instructions of an attacker, and so
may every text derived from it. Marks travel with such text: a tool returns them with its output, a
run collects them, and everything that the run stores gets them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Final, TypeAlias

import msgspec

from dodona.core.messages import Origin

MAX_MARKS: Final = 24  # of one text; of more, only the origins remain
MAX_SOURCE_CHARS: Final = 200
MAX_NAMED_MARKS: Final = 3  # in a sentence


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """An untrusted origin, and where the text was read: a URL, a note, `thread:12#34`, a peer.

    `source` is for people. It may be text of an attacker: one line, without control characters.
    """

    origin: Origin
    source: str = ""

    @classmethod
    def of(cls, origin: Origin, source: str = "") -> Mark:
        """Return the mark of a source, whose name may be any text."""
        name = " ".join(source[: 4 * MAX_SOURCE_CHARS].split())
        printable = "".join(char for char in name if char.isprintable())
        return cls(origin, printable[:MAX_SOURCE_CHARS])

    def __str__(self) -> str:
        return f"{self.origin.value}: {self.source}" if self.source else self.origin.value


Marks: TypeAlias = frozenset[Mark]

NO_MARKS: Final[Marks] = frozenset()

# Of a document of the API, sorted.
MarkList: TypeAlias = Annotated[
    list[Mark],
    msgspec.Meta(description="The untrusted sources that the text comes from."),
]


def merge_marks(*groups: Iterable[Mark]) -> Marks:
    """Return the marks of a text that is derived from several texts."""
    merged = frozenset(mark for group in groups for mark in group)
    if len(merged) <= MAX_MARKS:
        return merged
    return frozenset(Mark(mark.origin) for mark in merged)


def sort_marks(marks: Iterable[Mark]) -> list[Mark]:
    """Return marks in a stable order, for display and for storage."""
    return sorted(marks, key=lambda mark: (mark.origin.value, mark.source))


def describe_marks(marks: Iterable[Mark]) -> str:
    """Return marks as text for people: `web: https://example.org/, peer`."""
    return ", ".join(map(str, sort_marks(marks)))


def describe_some_marks(marks: Iterable[Mark]) -> str:
    """Return a few marks as text, at least one of each origin, and the number of the others."""
    ordered = sort_marks(marks)
    firsts = {mark.origin: mark for mark in reversed(ordered)}.values()
    named = [*dict.fromkeys((*firsts, *ordered))][: max(MAX_NAMED_MARKS, len(firsts))]
    more = len(ordered) - len(named)
    return describe_marks(named) + (f" and {more} more" if more else "")


def question_marks(origin: str, session_key: str | None) -> Marks:
    """Return the marks of a question: it is untrusted unless the user wrote it."""
    author = Origin(origin)
    return frozenset({Mark.of(author, session_key or "")}) if author.is_untrusted else NO_MARKS


def redact_marks(marks: Marks, redact: Callable[[str], str]) -> Marks:
    """Remove secrets from the sources, such as a key in a URL."""
    return frozenset(Mark(mark.origin, redact(mark.source)) for mark in marks)


def can_hold_text(value: object) -> bool:
    """Whether a JSON value can contain instructions: anything but a number, a flag or null."""
    return not isinstance(value, bool | int | float | None)


def encode_marks(marks: Marks) -> str | None:
    """Return marks as the JSON of a column; None for text without marks."""
    return msgspec.json.encode(sort_marks(marks)).decode() if marks else None


def decode_marks(text: str | None) -> Marks:
    """Return the marks of a column."""
    return frozenset(_decoder.decode(text)) if text else NO_MARKS


_decoder = msgspec.json.Decoder(list[Mark])
