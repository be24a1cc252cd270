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
from dodona.tools.code.index.index_file import load_text
from dodona.tools.code.index.query import Term, pairs_of, terms_of

COMMON_TERM_CHUNKS: Final = 2_500  # chunks that a word may be in to find candidates
MAX_CANDIDATES: Final = 6_000  # candidates
TOP_CANDIDATES: Final = 60  # of them, which are looked at closely
COMMON_RERANK_SIZE: Final = 24  # of those, by words that are nearly everywhere
MAX_HITS_PER_FILE: Final = 3  # of one file among the hits: others may know something too
MAX_HIT_CHARS: Final = 8_000  # of a hit: a line is never cut, and may be all of a file
HEAD_WEIGHT: Final = 1.5  # what a word in the head adds, beside 1 for the text
TEST_WEIGHT: Final = 0.8  # what a test is worth, beside what it tests
SEMANTIC_RERANK_SIZE: Final = (
    24  # chunks that are compared by meaning: 40 found hardly more, in twice the time
)
SEMANTIC_WEIGHT: Final = 0.6  # of a score that is compared so; the rest is by words

_K1: Final = 1.2
_B: Final = 0.6
_AVERAGE_WORDS: Final = 70  # words of a chunk
_MIN_LENGTH_RATIO: Final = 0.5  # of what counts as the length: to be shorter than that is no merit


@dataclass(frozen=True, slots=True)
class _IndexedTerm:
    """A term that is in the index: by this expression, in so many chunks, or in more."""

    expression: str
    count: int
    gain: float

    @property
    def is_common(self) -> bool:
        return self.count >= COMMON_TERM_CHUNKS


@dataclass(frozen=True, slots=True)
class _ScoredChunk:
    chunk: int
    file: int
    path: str
    first: int
    last: int
    title: str
    score: float


Ranked = TypeVar("Ranked", _ScoredChunk, CodeHit)


def search(db: sqlite3.Connection, query: str, limit: int) -> list[CodeHit]:
    """The best chunks; scores are between 0 and 1."""
    return _build_hits(db, _diversify(_rank_chunks(db, query, limit), limit))


def find_candidates(db: sqlite3.Connection, query: str, limit: int) -> list[CodeHit]:
    """The best chunks in order, and no rule that others of a file go last."""
    most = max(SEMANTIC_RERANK_SIZE, limit)
    return _build_hits(db, _rank_chunks(db, query, most)[:most])


def rerank(hits: Sequence[CodeHit], similarities: Sequence[float], limit: int) -> list[CodeHit]:
    """The best of the candidates by their words and by how close they are in meaning.

    Both are taken from the worst to the best there is; what was not compared is like the worst. The
    score stays one of words: that of the best of them is the most there is.
    """
    if not hits:
        return []
    words = _normalize([hit.score for hit in hits])
    near = _normalize([*similarities, *[min(similarities)] * (len(hits) - len(similarities))])
    best = max(hit.score for hit in hits)
    fused = [
        replace(
            hit, score=round(best * ((1 - SEMANTIC_WEIGHT) * word + SEMANTIC_WEIGHT * close), 4)
        )
        for hit, word, close in zip(hits, words, near, strict=True)
    ]
    return _diversify(sorted(fused, key=lambda hit: -hit.score), limit)


def _normalize(values: Sequence[float]) -> list[float]:
    """From 0 for the least to 1 for the most; all are 1 when they are alike."""
    least, most = min(values), max(values)
    return [(value - least) / (most - least) if most > least else 1.0 for value in values]


def _rank_chunks(db: sqlite3.Connection, query: str, limit: int) -> list[_ScoredChunk]:
    total = db.execute("SELECT max(id) FROM chunks").fetchone()[0] or 0
    wanted = terms_of(query)
    known = [found for term in wanted if (found := _find_term(db, term, total))]
    known += [found for pair in pairs_of(query) if (found := _find_exact_term(db, pair, total))]
    if not known:
        return []
    rare = [each for each in known if not each.is_common]
    scores = _score_rare(db, rare) if rare else _score_common(db, known)
    best = dict(nlargest(max(TOP_CANDIDATES, limit), scores.items(), key=lambda item: item[1]))
    if rare:
        _boost_common(db, best, [each for each in known if each.is_common])
    most = sum(each.gain for each in known) * (1 + HEAD_WEIGHT)
    return _load_chunks(db, best, most, is_about_tests="test" in query.lower())


def _find_term(db: sqlite3.Connection, term: Term, total: int) -> _IndexedTerm | None:
    """A term by the first of its forms that is in the index."""
    for form in term.expressions():
        if count := _count_chunks(db, form):
            return _IndexedTerm(form, count, term.weight * _idf(total, count))
    return None


def _find_exact_term(db: sqlite3.Connection, term: Term, total: int) -> _IndexedTerm | None:
    count = _count_chunks(db, term.exact_expression)
    return (
        _IndexedTerm(term.exact_expression, count, term.weight * _idf(total, count))
        if count
        else None
    )


def _idf(total: int, count: int) -> float:
    return math.log(1 + (max(total - count, 0) + 0.5) / (count + 0.5))


def _count_chunks(db: sqlite3.Connection, expression: str) -> int:
    found = db.execute(
        "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)",
        (expression, COMMON_TERM_CHUNKS),
    )
    return found.fetchone()[0]


def _score_rare(db: sqlite3.Connection, terms: Iterable[_IndexedTerm]) -> dict[int, float]:
    """Every chunk with one of the terms, the rarest terms first."""
    scores: dict[int, float] = {}
    for term in sorted(terms, key=lambda term: term.count):
        if len(scores) + term.count > MAX_CANDIDATES and scores:
            break
        for column, worth in (("head", HEAD_WEIGHT), ("body", 1.0)):
            gain = term.gain * worth
            for chunk in _matching_chunks(db, f"{column} : ({term.expression})"):
                scores[chunk] = scores.get(chunk, 0.0) + gain
    return scores


def _score_common(db: sqlite3.Connection, terms: Sequence[_IndexedTerm]) -> dict[int, float]:
    """Chunks that have all of the terms, in their heads if there are such; else any of them."""
    every = " AND ".join(f"({term.expression})" for term in terms)
    some = " OR ".join(f"({term.expression})" for term in terms)
    gain = sum(term.gain for term in terms)
    scores: dict[int, float] = {}
    for expression, worth in ((f"head : ({every})", HEAD_WEIGHT), (every, 1.0), (some, 0.5)):
        for chunk in _matching_chunks(db, expression):
            scores[chunk] = scores.get(chunk, 0.0) + gain * worth
        if len(scores) >= TOP_CANDIDATES:
            break
    return scores


def _boost_common(
    db: sqlite3.Connection, scores: dict[int, float], terms: Iterable[_IndexedTerm]
) -> None:
    """What common terms add to the very best chunks, wherever in them they are.

    Each chunk is looked for in the long list of each term: that is what most of a search takes.
    """
    first = nlargest(COMMON_RERANK_SIZE, scores, key=scores.__getitem__)
    places = ", ".join("?" * len(first))
    for term in terms:
        found = db.execute(
            f"SELECT rowid FROM words WHERE words MATCH ? AND rowid IN ({places})",  # noqa: S608
            (term.expression, *first),
        )
        for (chunk,) in found:
            scores[chunk] += term.gain


def _matching_chunks(db: sqlite3.Connection, expression: str) -> Iterable[int]:
    found = db.execute(
        "SELECT rowid FROM words WHERE words MATCH ? LIMIT ?", (expression, MAX_CANDIDATES)
    )
    return [row[0] for row in found]


def _load_chunks(
    db: sqlite3.Connection, scores: dict[int, float], max_score: float, *, is_about_tests: bool
) -> list[_ScoredChunk]:
    """The best chunks in order, long ones and tests put back."""
    places = ", ".join("?" * len(scores))
    found = db.execute(
        "SELECT c.id, c.file, f.path, c.first, c.last, c.title, c.words FROM chunks c"  # noqa: S608
        f" JOIN files f ON f.id = c.file WHERE c.id IN ({places})",
        tuple(scores),
    )
    rows: list[_ScoredChunk] = []
    for chunk, file, path, first, last, title, words in found:
        length = 1 - _B + _B * words / _AVERAGE_WORDS
        score = (
            scores[chunk]
            / max_score
            * (1 + _K1 * _MIN_LENGTH_RATIO)
            / (1 + _K1 * max(length, _MIN_LENGTH_RATIO))
        )
        if not is_about_tests and is_test(path):
            score *= TEST_WEIGHT
        rows.append(_ScoredChunk(chunk, file, path, first, last, title, score))
    return sorted(rows, key=lambda row: (-row.score, row.chunk))


def _diversify(rows: Iterable[Ranked], limit: int) -> list[Ranked]:
    """The first of them, those that no longer fit beside others of a file last."""
    taken: dict[str, int] = {}
    early: list[Ranked] = []
    late: list[Ranked] = []
    for row in rows:
        taken[row.path] = taken.get(row.path, 0) + 1
        (early if taken[row.path] <= MAX_HITS_PER_FILE else late).append(row)
    return sorted((early + late)[:limit], key=lambda row: -row.score)


def _build_hits(db: sqlite3.Connection, rows: Iterable[_ScoredChunk]) -> list[CodeHit]:
    """Chunks with their text."""
    hits: list[CodeHit] = []
    for row in rows:
        lines = load_text(db, row.file).split(b"\n")[row.first - 1 : row.last]
        text = text_of(b"\n".join(line.removesuffix(b"\r") for line in lines))
        place = (row.path, row.first, row.last, row.title)
        hits.append(CodeHit(*place, text[:MAX_HIT_CHARS], round(row.score, 4)))
    return hits
