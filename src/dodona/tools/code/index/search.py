"""Searches the chunks of an index, ranked by an approximation of BM25.

A word counts once in a chunk's text and once in its head (the title and the file's name). Rare
words find the candidates; common words only help to order them. So a query never scores more than a
few thousand chunks, whatever the size of the index. Queries have no operators.
"""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import pairwise
from typing import Final, TypeVar

from msgspec.structs import replace

from dodona.core.domain.knowledge.code import CodeHit
from dodona.tools.code.files.folders import is_test, text_of
from dodona.tools.code.index.index_file import load_text
from dodona.tools.code.index.tokenize import MAX_WORD_BYTES, parts_of

COMMON_TERM_CHUNKS: Final = 2_500  # a word in more chunks is common and finds no candidates
MAX_CANDIDATES: Final = 6_000
TOP_CANDIDATES: Final = 60  # candidates that are scored in detail
COMMON_RERANK_SIZE: Final = 24  # of these, rescored by common words
MAX_HITS_PER_FILE: Final = 3  # further hits of a file rank last
MAX_HIT_CHARS: Final = 8_000  # lines are never split, and one may be a whole file
HEAD_WEIGHT: Final = 1.5  # a word in the head, relative to 1 in the text
TEST_WEIGHT: Final = 0.8  # a test file, relative to the code it tests
SEMANTIC_RERANK_SIZE: Final = 24  # 40 was hardly better and took twice the time
SEMANTIC_WEIGHT: Final = 0.6  # share of the similarity in a reranked score; the rest is by words

_K1: Final = 1.2
_B: Final = 0.6
_AVERAGE_WORDS: Final = 70  # words per chunk
_MIN_LENGTH_RATIO: Final = 0.5  # shorter chunks get no further bonus


@dataclass(frozen=True, slots=True)
class _IndexedTerm:
    """A term found in the index: its expression, and its chunk count up to a maximum."""

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
    """Return the best chunks, with scores between 0 and 1."""
    return _build_hits(db, _diversify(_rank_chunks(db, query, limit), limit))


def find_candidates(db: sqlite3.Connection, query: str, limit: int) -> list[CodeHit]:
    """Return the best chunks in order, without the limit per file."""
    max_hits = max(SEMANTIC_RERANK_SIZE, limit)
    return _build_hits(db, _rank_chunks(db, query, max_hits)[:max_hits])


def rerank(hits: Sequence[CodeHit], similarities: Sequence[float], limit: int) -> list[CodeHit]:
    """Return the best candidates by their words and by similarity in meaning.

    Both are normalized between the worst and the best; chunks without a similarity count as the
    worst. The result is scaled to the best word score.
    """
    if not hits:
        return []
    word_scores = _normalize([hit.score for hit in hits])
    semantic_scores = _normalize(
        [*similarities, *[min(similarities)] * (len(hits) - len(similarities))]
    )
    best = max(hit.score for hit in hits)
    reranked = [
        replace(
            hit,
            score=round(
                best * ((1 - SEMANTIC_WEIGHT) * word_score + SEMANTIC_WEIGHT * semantic_score), 4
            ),
        )
        for hit, word_score, semantic_score in zip(hits, word_scores, semantic_scores, strict=True)
    ]
    return _diversify(sorted(reranked, key=lambda hit: -hit.score), limit)


def _normalize(values: Sequence[float]) -> list[float]:
    """Scale values to 0..1; all are 1 if they are equal."""
    minimum, maximum = min(values), max(values)
    return [
        (value - minimum) / (maximum - minimum) if maximum > minimum else 1.0 for value in values
    ]


def _rank_chunks(db: sqlite3.Connection, query: str, limit: int) -> list[_ScoredChunk]:
    total = db.execute("SELECT max(id) FROM chunks").fetchone()[0] or 0
    terms = terms_of(query)
    indexed_terms = [indexed for term in terms if (indexed := _find_term(db, term, total))]
    indexed_terms += [
        indexed for pair in pairs_of(query) if (indexed := _find_exact_term(db, pair, total))
    ]
    if not indexed_terms:
        return []
    rare = [each for each in indexed_terms if not each.is_common]
    scores = _score_rare(db, rare) if rare else _score_common(db, indexed_terms)
    best = dict(nlargest(max(TOP_CANDIDATES, limit), scores.items(), key=lambda item: item[1]))
    if rare:
        _boost_common(db, best, [each for each in indexed_terms if each.is_common])
    max_score = sum(each.gain for each in indexed_terms) * (1 + HEAD_WEIGHT)
    return _load_chunks(db, best, max_score, is_about_tests="test" in query.lower())


def _find_term(db: sqlite3.Connection, term: Term, total: int) -> _IndexedTerm | None:
    """Return a term by the first of its expressions that occurs in the index."""
    for expression in term.expressions():
        if count := _count_chunks(db, expression):
            return _IndexedTerm(expression, count, term.weight * _idf(total, count))
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
    rows = db.execute(
        "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)",
        (expression, COMMON_TERM_CHUNKS),
    )
    return rows.fetchone()[0]


def count_words(db: sqlite3.Connection, words: Iterable[str]) -> tuple[int, dict[str, int]]:
    """Return the number of chunks, and for each word how many have it, up to a maximum.

    A word of some length includes longer ones, because the index has no stems.
    """
    total = db.execute("SELECT max(id) FROM chunks").fetchone()[0] or 0
    terms = {word: Term(word).exact_expression for word in words}
    expressions = {
        word: f"{exact} *" if len(word) >= MIN_STEM_LENGTH else exact
        for word, exact in terms.items()
    }
    return total, {word: _count_chunks(db, each) for word, each in expressions.items()}


def _score_rare(db: sqlite3.Connection, terms: Iterable[_IndexedTerm]) -> dict[int, float]:
    """Score every chunk with one of the terms, rarest terms first."""
    scores: dict[int, float] = {}
    for term in sorted(terms, key=lambda term: term.count):
        if len(scores) + term.count > MAX_CANDIDATES and scores:
            break
        for column, weight in (("head", HEAD_WEIGHT), ("body", 1.0)):
            gain = term.gain * weight
            for chunk in _matching_chunks(db, f"{column} : ({term.expression})"):
                scores[chunk] = scores.get(chunk, 0.0) + gain
    return scores


def _score_common(db: sqlite3.Connection, terms: Sequence[_IndexedTerm]) -> dict[int, float]:
    """Score chunks with all terms, first in their heads; else chunks with any term."""
    all_terms = " AND ".join(f"({term.expression})" for term in terms)
    any_term = " OR ".join(f"({term.expression})" for term in terms)
    gain = sum(term.gain for term in terms)
    scores: dict[int, float] = {}
    for expression, weight in (
        (f"head : ({all_terms})", HEAD_WEIGHT),
        (all_terms, 1.0),
        (any_term, 0.5),
    ):
        for chunk in _matching_chunks(db, expression):
            scores[chunk] = scores.get(chunk, 0.0) + gain * weight
        if len(scores) >= TOP_CANDIDATES:
            break
    return scores


def _boost_common(
    db: sqlite3.Connection, scores: dict[int, float], terms: Iterable[_IndexedTerm]
) -> None:
    """Add the gain of common terms to the best chunks.

    This is the slowest part of a search: it looks up each chunk in each term's long list.
    """
    top_chunks = nlargest(COMMON_RERANK_SIZE, scores, key=scores.__getitem__)
    placeholders = ", ".join("?" * len(top_chunks))
    for term in terms:
        rows = db.execute(
            f"SELECT rowid FROM words WHERE words MATCH ? AND rowid IN ({placeholders})",  # noqa: S608
            (term.expression, *top_chunks),
        )
        for (chunk,) in rows:
            scores[chunk] += term.gain


def _matching_chunks(db: sqlite3.Connection, expression: str) -> Iterable[int]:
    rows = db.execute(
        "SELECT rowid FROM words WHERE words MATCH ? LIMIT ?", (expression, MAX_CANDIDATES)
    )
    return [row[0] for row in rows]


def _load_chunks(
    db: sqlite3.Connection, scores: dict[int, float], max_score: float, *, is_about_tests: bool
) -> list[_ScoredChunk]:
    """Load the chunks, best first; long chunks and tests score lower."""
    placeholders = ", ".join("?" * len(scores))
    rows = db.execute(
        "SELECT c.id, c.file, f.path, c.first, c.last, c.title, c.words FROM chunks c"  # noqa: S608
        f" JOIN files f ON f.id = c.file WHERE c.id IN ({placeholders})",
        tuple(scores),
    )
    chunks: list[_ScoredChunk] = []
    for chunk, file, path, first, last, title, words in rows:
        length = 1 - _B + _B * words / _AVERAGE_WORDS
        score = (
            scores[chunk]
            / max_score
            * (1 + _K1 * _MIN_LENGTH_RATIO)
            / (1 + _K1 * max(length, _MIN_LENGTH_RATIO))
        )
        if not is_about_tests and is_test(path):
            score *= TEST_WEIGHT
        chunks.append(_ScoredChunk(chunk, file, path, first, last, title, score))
    return sorted(chunks, key=lambda row: (-row.score, row.chunk))


def _diversify(rows: Iterable[Ranked], limit: int) -> list[Ranked]:
    """Return the first rows; those beyond the limit per file come last."""
    counts: dict[str, int] = {}
    within_limit: list[Ranked] = []
    beyond_limit: list[Ranked] = []
    for row in rows:
        counts[row.path] = counts.get(row.path, 0) + 1
        (within_limit if counts[row.path] <= MAX_HITS_PER_FILE else beyond_limit).append(row)
    return sorted((within_limit + beyond_limit)[:limit], key=lambda row: -row.score)


def _build_hits(db: sqlite3.Connection, rows: Iterable[_ScoredChunk]) -> list[CodeHit]:
    """Load the text of the chunks."""
    hits: list[CodeHit] = []
    for row in rows:
        lines = load_text(db, row.file).split(b"\n")[row.first - 1 : row.last]
        text = text_of(b"\n".join(line.removesuffix(b"\r") for line in lines))
        location = (row.path, row.first, row.last, row.title)
        hits.append(CodeHit(*location, text[:MAX_HIT_CHARS], round(row.score, 4)))
    return hits


# -- queries ---------------------------------------------------------------------------------------

MAX_QUERY_CHARS: Final = 1_000
MAX_WORDS: Final = 16
MIN_STEM_LENGTH: Final = 4
PART_WEIGHT: Final = 0.4  # part of an identifier, relative to the whole
PAIR_WEIGHT: Final = 0.6  # two neighbouring words as one identifier

_WORD = re.compile(r"\w+")
_STOP_WORD_TEXT: Final = """
a an and are as at be by can did do does for from has have how i in is it its my of on or our that
the their there these this to was we were what when where which who why will with you
code defined definition function implemented used
"""
_STOP_WORDS: Final = frozenset(_STOP_WORD_TEXT.split())


@dataclass(frozen=True, slots=True)
class Term:
    """A word to search for; `weight` is relative to other terms."""

    word: str
    weight: float = 1.0

    @property
    def exact_expression(self) -> str:
        return f'"{self.word}"'  # a word contains no quotes

    def expressions(self) -> Iterator[str]:
        """Yield FTS5 expressions: the word, then as a prefix, then with its ending removed."""
        yield self.exact_expression
        yield f"{self.exact_expression} *"
        if self.word.isalpha():
            for end in range(len(self.word) - 1, max(len(self.word) - 4, MIN_STEM_LENGTH - 1), -1):
                yield f'"{self.word[:end]}" *'


def terms_of(query: str) -> list[Term]:
    """Return the words of a query and the parts of its identifiers, without duplicates."""
    words = _remove_stop_words(_WORD.findall(query[:MAX_QUERY_CHARS]))
    weights: dict[str, float] = {}
    for word in words:
        weights[word.lower()] = 1.0
    for word in words:
        for part in parts_of(word):
            weights.setdefault(part, PART_WEIGHT)
    return [Term(word, weight) for word, weight in weights.items()]


def pairs_of(query: str) -> list[Term]:
    """Join neighbouring words: `token bucket` may be written token_bucket or TokenBucket."""
    words = [word.lower() for word in _remove_stop_words(_WORD.findall(query[:MAX_QUERY_CHARS]))]
    return [
        Term(joined, PAIR_WEIGHT)
        for first, second in pairwise(words)
        for joined in (f"{first}_{second}", f"{first}{second}")
    ]


def _remove_stop_words(words: list[str]) -> list[str]:
    """Remove stop words, unless there are no other words."""
    short = [word for word in words if len(word.encode("utf-8", "replace")) <= MAX_WORD_BYTES]
    significant = [word for word in short if word.lower() not in _STOP_WORDS]
    return list(dict.fromkeys(significant or short))[:MAX_WORDS]
