"""Which chunks of an index fit a query, ranked by BM25 of which the index keeps enough.

A word counts once in a chunk's text and once in its head (the title and the file's name). Rare
words find the candidates; those that are nearly everywhere only help to order them. So a query
never scores more than some thousand chunks, however large the index is.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest
from typing import Final, TypeVar

from dodona.core.domain.knowledge.code import CodeHit
from dodona.tools.code.files.files import text_of
from dodona.tools.code.files.folders import is_test
from dodona.tools.code.index.index_file import text_in
from dodona.tools.code.index.query import Term, pairs_of, terms_of

COMMON: Final = 2_500  # chunks that a word may be in to find candidates
MOST_ROWS: Final = 6_000  # candidates
BEST: Final = 60  # of them, which are looked at closely
REORDERED: Final = 24  # of those, by words that are nearly everywhere
MOST_PER_FILE: Final = 3  # of one file among the hits: others may know something too
LONGEST_TEXT: Final = 8_000  # of a hit: a line is never cut, and may be all of a file
IN_HEAD: Final = 1.5  # what a word in the head adds, beside 1 for the text
OF_TEST: Final = 0.8  # what a test is worth, beside what it tests
COMPARED: Final = 24  # chunks that are compared by meaning: 40 found hardly more, in twice the time
BY_MEANING: Final = 0.6  # of a score that is compared so; the rest is by words

_K1: Final = 1.2
_B: Final = 0.6
_AVERAGE: Final = 70  # words of a chunk
_SHORT: Final = 0.5  # of what counts as the length: to be shorter than that is no merit


@dataclass(frozen=True, slots=True)
class _Known:
    """A term that is in the index: by this expression, in so many chunks, or in more."""

    expression: str
    count: int
    gain: float

    @property
    def is_common(self) -> bool:
        return self.count >= COMMON


@dataclass(frozen=True, slots=True)
class _Row:
    chunk: int
    file: int
    path: str
    first: int
    last: int
    title: str
    score: float


Ranked = TypeVar("Ranked", _Row, CodeHit)


def search(db: sqlite3.Connection, query: str, limit: int) -> list[CodeHit]:
    """The best chunks; scores are between 0 and 1."""
    return _hits(db, _spread(_ranked(db, query, limit), limit))


def candidates(db: sqlite3.Connection, query: str, limit: int) -> list[CodeHit]:
    """The best chunks in order, and no rule that others of a file go last."""
    most = max(COMPARED, limit)
    return _hits(db, _ranked(db, query, most)[:most])


def reordered(hits: Sequence[CodeHit], closeness: Sequence[float], limit: int) -> list[CodeHit]:
    """The best of the candidates by their words and by how close they are in meaning.

    Both are taken from the worst to the best there is; what was not compared is like the worst. The
    score stays one of words: that of the best of them is the most there is.
    """
    if not hits:
        return []
    words = _stretched([hit.score for hit in hits])
    near = _stretched([*closeness, *[min(closeness)] * (len(hits) - len(closeness))])
    best = max(hit.score for hit in hits)
    fused = [
        replace(hit, score=round(best * ((1 - BY_MEANING) * word + BY_MEANING * close), 4))
        for hit, word, close in zip(hits, words, near, strict=True)
    ]
    return _spread(sorted(fused, key=lambda hit: -hit.score), limit)


def _stretched(values: Sequence[float]) -> list[float]:
    """From 0 for the least to 1 for the most; all are 1 when they are alike."""
    least, most = min(values), max(values)
    return [(value - least) / (most - least) if most > least else 1.0 for value in values]


def _ranked(db: sqlite3.Connection, query: str, limit: int) -> list[_Row]:
    total = db.execute("SELECT max(id) FROM chunks").fetchone()[0] or 0
    wanted = terms_of(query)
    known = [found for term in wanted if (found := _known(db, term, total))]
    known += [found for pair in pairs_of(query) if (found := _exactly(db, pair, total))]
    if not known:
        return []
    rare = [each for each in known if not each.is_common]
    scores = _scored(db, rare) if rare else _common(db, known)
    best = dict(nlargest(max(BEST, limit), scores.items(), key=lambda item: item[1]))
    if rare:
        _add_common(db, best, [each for each in known if each.is_common])
    most = sum(each.gain for each in known) * (1 + IN_HEAD)
    return _rows(db, best, most, is_about_tests="test" in query.lower())


def _known(db: sqlite3.Connection, term: Term, total: int) -> _Known | None:
    """A term by the first of its forms that is in the index."""
    for form in term.forms():
        if count := _count(db, form):
            return _Known(form, count, term.weight * _idf(total, count))
    return None


def _exactly(db: sqlite3.Connection, term: Term, total: int) -> _Known | None:
    count = _count(db, term.whole)
    return _Known(term.whole, count, term.weight * _idf(total, count)) if count else None


def _idf(total: int, count: int) -> float:
    return math.log(1 + (max(total - count, 0) + 0.5) / (count + 0.5))


def _count(db: sqlite3.Connection, expression: str) -> int:
    found = db.execute(
        "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)",
        (expression, COMMON),
    )
    return found.fetchone()[0]


def _scored(db: sqlite3.Connection, terms: Iterable[_Known]) -> dict[int, float]:
    """Every chunk with one of the terms, the rarest terms first."""
    scores: dict[int, float] = {}
    for term in sorted(terms, key=lambda term: term.count):
        if len(scores) + term.count > MOST_ROWS and scores:
            break
        for column, worth in (("head", IN_HEAD), ("body", 1.0)):
            gain = term.gain * worth
            for chunk in _matching(db, f"{column} : ({term.expression})"):
                scores[chunk] = scores.get(chunk, 0.0) + gain
    return scores


def _common(db: sqlite3.Connection, terms: Sequence[_Known]) -> dict[int, float]:
    """Chunks that have all of the terms, in their heads if there are such; else any of them."""
    every = " AND ".join(f"({term.expression})" for term in terms)
    some = " OR ".join(f"({term.expression})" for term in terms)
    gain = sum(term.gain for term in terms)
    scores: dict[int, float] = {}
    for expression, worth in ((f"head : ({every})", IN_HEAD), (every, 1.0), (some, 0.5)):
        for chunk in _matching(db, expression):
            scores[chunk] = scores.get(chunk, 0.0) + gain * worth
        if len(scores) >= BEST:
            break
    return scores


def _add_common(db: sqlite3.Connection, best: dict[int, float], terms: Iterable[_Known]) -> None:
    """What common terms add to the very best chunks, wherever in them they are.

    Each chunk is looked for in the long list of each term: that is what most of a search takes.
    """
    first = nlargest(REORDERED, best, key=best.__getitem__)
    places = ", ".join("?" * len(first))
    for term in terms:
        found = db.execute(
            f"SELECT rowid FROM words WHERE words MATCH ? AND rowid IN ({places})",  # noqa: S608
            (term.expression, *first),
        )
        for (chunk,) in found:
            best[chunk] += term.gain


def _matching(db: sqlite3.Connection, expression: str) -> Iterable[int]:
    found = db.execute(
        "SELECT rowid FROM words WHERE words MATCH ? LIMIT ?", (expression, MOST_ROWS)
    )
    return [row[0] for row in found]


def _rows(
    db: sqlite3.Connection, best: dict[int, float], most: float, *, is_about_tests: bool
) -> list[_Row]:
    """The best chunks in order, long ones and tests put back."""
    places = ", ".join("?" * len(best))
    found = db.execute(
        "SELECT c.id, c.file, f.path, c.first, c.last, c.title, c.words FROM chunks c"  # noqa: S608
        f" JOIN files f ON f.id = c.file WHERE c.id IN ({places})",
        tuple(best),
    )
    rows: list[_Row] = []
    for chunk, file, path, first, last, title, words in found:
        length = 1 - _B + _B * words / _AVERAGE
        score = best[chunk] / most * (1 + _K1 * _SHORT) / (1 + _K1 * max(length, _SHORT))
        if not is_about_tests and is_test(path):
            score *= OF_TEST
        rows.append(_Row(chunk, file, path, first, last, title, score))
    return sorted(rows, key=lambda row: (-row.score, row.chunk))


def _spread(rows: Iterable[Ranked], limit: int) -> list[Ranked]:
    """The first of them, those that no longer fit beside others of a file last."""
    taken: dict[str, int] = {}
    early: list[Ranked] = []
    late: list[Ranked] = []
    for row in rows:
        taken[row.path] = taken.get(row.path, 0) + 1
        (early if taken[row.path] <= MOST_PER_FILE else late).append(row)
    return sorted((early + late)[:limit], key=lambda row: -row.score)


def _hits(db: sqlite3.Connection, rows: Iterable[_Row]) -> list[CodeHit]:
    """Chunks with their text."""
    hits: list[CodeHit] = []
    for row in rows:
        lines = text_in(db, row.file).split(b"\n")[row.first - 1 : row.last]
        text = text_of(b"\n".join(line.removesuffix(b"\r") for line in lines))
        place = (row.path, row.first, row.last, row.title)
        hits.append(CodeHit(*place, text[:LONGEST_TEXT], round(row.score, 4)))
    return hits
