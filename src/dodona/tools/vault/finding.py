"""Which sections of an index fit the words of a query.

A term is looked for as a word in its inflections, then as the beginning of words, then as a part of
them, and at last without its ending. Sections are ranked by BM25.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from dodona.tools.vault.query import beginning, either, part, stems, whole

MOST_WORDS: Final = 20  # that a part of a word may stand for
MOST_PER_NOTE: Final = 2  # sections of one note among the hits: others may know something too


@dataclass(frozen=True, slots=True)
class Hit:
    """A section that fits: lines `first` to `last` of a note."""

    path: str
    first: int
    last: int
    title: str
    headings: str
    text: str


def search(db: sqlite3.Connection, terms: Sequence[str], *, limit: int) -> list[Hit]:
    """The best sections, at most `limit` of them."""
    known = [expression for term in terms if (expression := _known(db, term))]
    if not known:
        return []
    found = db.execute(
        "SELECT rowid FROM words WHERE words MATCH ?"
        " ORDER BY bm25(words, 8.0, 4.0, 1.0, 3.0), rowid LIMIT ?",  # title, headings, body, labels
        (either(known), limit * 10),
    )
    return list(islice(_spread(_hit(db, row[0]) for row in found.fetchall()), limit))


def _known(db: sqlite3.Connection, term: str) -> str | None:
    """The first expression for a term that finds something."""
    return next((form for form in _forms(db, term) if form and _finds(db, form)), None)


def _forms(db: sqlite3.Connection, term: str) -> Iterator[str]:
    yield whole(term)
    yield beginning(term)
    yield _within(db, part(term))
    yield from map(beginning, stems(term))


def _within(db: sqlite3.Connection, inside: str) -> str:
    """An expression for the most frequent words that have something in them."""
    found = db.execute(
        "SELECT term FROM vocabulary WHERE ? != '' AND instr(term, ?) ORDER BY cnt DESC LIMIT ?",
        (inside, inside, MOST_WORDS),
    )
    return either([whole(row[0]) for row in found])


def _finds(db: sqlite3.Connection, expression: str) -> bool:
    found = db.execute("SELECT 1 FROM words WHERE words MATCH ? LIMIT 1", (expression,))
    return found.fetchone() is not None


def _hit(db: sqlite3.Connection, section: int) -> Hit:
    found = db.execute(
        "SELECT path, first, last, title, headings, body FROM sections WHERE id = ?", (section,)
    )
    return Hit(*found.fetchone())


def _spread(hits: Iterator[Hit]) -> Iterator[Hit]:
    """The hits in order, those that no longer fit beside others of their note last."""
    taken: dict[str, int] = {}
    late: list[Hit] = []
    for hit in hits:
        taken[hit.path] = taken.get(hit.path, 0) + 1
        if taken[hit.path] <= MOST_PER_NOTE:
            yield hit
        else:
            late.append(hit)
    yield from late
