"""Which sections of an index fit the words of a query.

A term is looked for as a word in its inflections, then as the beginning of words, then as a part of
them, and at last without its ending. Sections are ranked by BM25 and by how recent their note is:

    quality = BM25 of the section / BM25 of one that says every term of the query all the time
    score   = quality x (1 + 0.25 x 0.5^(age in days / 30)) / 1.25

BM25 costs more than a microsecond for each section that has one of the words, so at most 1,500 are
ranked. The rarest terms choose these; a frequent one only adds to the score of those that have it
too, and one that is nearly everywhere adds nothing. When a query has only frequent terms, those
count that say all of them, in the name of their note or else in the most recent sections.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from time import time
from typing import Any, Final, NamedTuple, TypeAlias

from dodona.core.domain.knowledge.notes import NoteHit
from dodona.tools.rebuildable_db import FileIdentity
from dodona.tools.vault.index.query import (
    all_of,
    any_of,
    in_names_and_labels,
    phrase_expression,
    prefix_expression,
    stems,
    substring_of,
    terms_of,
)
from dodona.tools.vault.index.vocabulary import Vocabulary

MAX_EXPANDED_WORDS: Final = 20  # that a part of a word may stand for
MAX_SECTIONS_PER_NOTE: Final = (
    2  # sections of one note among the hits: others may know something too
)
MAX_RANKED: Final = 1_500
MAX_COUNTED: Final = 6_000  # what is in more sections is everywhere
MAX_RECENT: Final = 300
MAX_OTHER_TERMS: Final = 4  # terms beside the rare ones that are looked at
TERM_CACHE_SIZE: Final = 10_000  # terms
MIN_CANDIDATES: Final = 50  # of which the age is looked at
RECENCY_WEIGHT: Final = 0.25
HALF_LIFE_DAYS: Final = 30.0

_SECONDS_PER_DAY: Final = 86_400
_BM25_K1: Final = 1.2  # k1 of BM25: what a word says the second time is worth less
_NAME_WEIGHT: Final = 8.0


class _ScoredSection(NamedTuple):
    """A section; in order, the best come first."""

    negative_score: float
    path: str
    first: int
    section: int


@dataclass(frozen=True, slots=True)
class _Term:
    """An expression that finds something, and in how many sections."""

    expression: str
    count: int


_TermCache: TypeAlias = "dict[str, _Term | None]"


class SectionSearcher:
    """Finds in one index, which is the file `of` this identity. For any number of threads.

    What a term finds is remembered until the index changes: the frequent ones, which take longest
    to count, are in nearly every question.
    """

    def __init__(self) -> None:
        self._vocabulary = Vocabulary()
        self._term_cache: tuple[tuple[FileIdentity, int, int], _TermCache] = (((0, 0), 0, 0), {})

    def search(
        self, db: sqlite3.Connection, query: str, *, limit: int, identity: FileIdentity
    ) -> list[NoteHit]:
        """The best sections, at most `limit` of them."""
        best = self._best_sections(db, terms_of(query), limit=limit, identity=identity)
        texts = _read_sections(db, _TEXTS_SQL, [each.section for each in best])
        return [
            NoteHit(each.path, each.first, *texts[each.section], score=-each.negative_score)
            for each in best
        ]

    def search_paths(
        self, db: sqlite3.Connection, query: str, *, limit: int, identity: FileIdentity
    ) -> list[str]:
        """The notes of the best sections, each once."""
        best = self._best_sections(db, terms_of(query), limit=limit, identity=identity)
        return list(dict.fromkeys(each.path for each in best))

    def _best_sections(
        self, db: sqlite3.Connection, terms: Sequence[str], *, limit: int, identity: FileIdentity
    ) -> list[_ScoredSection]:
        last, total = db.execute("SELECT last_section, sections FROM state").fetchone()
        remembered = self._term_cache_for((identity, last, total))
        for term in terms:
            if term not in remembered:
                remembered[term] = self._resolve_term(db, term, identity)
        known = [remembered[term] for term in terms]
        found = sorted(filter(None, known), key=lambda term: term.count)
        if not found:
            return []
        is_rare = found[0].count <= MAX_RANKED
        qualities = (_by_rarest if is_rare else _by_name_and_age)(db, found, total)
        share = _matched_share([term.count if term else 0 for term in known], total)
        chosen = sorted(qualities, key=qualities.__getitem__, reverse=True)[
            : _candidate_count(limit)
        ]
        scored = sorted(_score_sections(db, {each: qualities[each] * share for each in chosen}))
        return list(islice(_spread(scored), limit))

    def _term_cache_for(self, state: tuple[FileIdentity, int, int]) -> _TermCache:
        """A thread that still sees an older state has terms of its own."""
        known_state, known = self._term_cache
        if known_state != state or len(known) > TERM_CACHE_SIZE:
            known = {}
            self._term_cache = (state, known)
        return known

    def _resolve_term(
        self, db: sqlite3.Connection, term: str, identity: FileIdentity
    ) -> _Term | None:
        """The first expression for a term that finds something."""
        for form in filter(None, self._candidate_expressions(db, term, identity)):
            (count,) = db.execute(_COUNT_SQL, (form, MAX_COUNTED + 1)).fetchone()
            if count:
                return _Term(form, count)
        return None

    def _candidate_expressions(
        self, db: sqlite3.Connection, term: str, identity: FileIdentity
    ) -> Iterator[str]:
        yield phrase_expression(term)
        yield prefix_expression(term)
        words = self._vocabulary.words_containing(
            db, substring_of(term), identity=identity, limit=MAX_EXPANDED_WORDS
        )
        yield any_of([phrase_expression(word) for word in words])
        yield from map(prefix_expression, stems(term))


def _by_rarest(db: sqlite3.Connection, terms: Sequence[_Term], total: int) -> dict[int, float]:
    """Sections with a rare term; what else they say only adds to that."""
    counts = accumulate(term.count for term in terms)
    rare = [term for term, count in zip(terms, counts, strict=True) if count <= MAX_RANKED]
    others = [term for term in terms[len(rare) :] if term.count <= MAX_COUNTED][:MAX_OTHER_TERMS]
    ideal = (1 + _BM25_K1) * sum(_inverse_frequency(term.count, total) for term in (*rare, *others))
    expression = any_of([term.expression for term in rare])
    found = db.execute(_RANK_SQL, (expression,))
    qualities = {section: -rank / ideal for section, rank in found}
    for term in others:
        more = _inverse_frequency(term.count, total) / ideal
        for (section,) in db.execute(_MATCH_SQL, (all_of([expression, term.expression]),)):
            qualities[section] += more
    return qualities


def _by_name_and_age(
    db: sqlite3.Connection, terms: Sequence[_Term], total: int
) -> dict[int, float]:
    """Sections with all of some frequent terms, in names before in text; of these the newest."""
    telling = [term for term in terms if term.count <= MAX_COUNTED] or list(terms)
    ideal = (1 + _BM25_K1) * sum(_inverse_frequency(term.count, total) for term in telling)
    qualities: dict[int, float] = {}
    for some in (telling[:MAX_OTHER_TERMS], telling[:1]):
        worth = sum(_inverse_frequency(term.count, total) for term in some) / ideal
        expression = all_of([term.expression for term in some])
        in_name = worth * _NAME_WEIGHT * (1 + _BM25_K1) / (_NAME_WEIGHT + _BM25_K1)
        for where, quality in ((in_names_and_labels(expression), in_name), (expression, worth)):
            for (section,) in db.execute(_NEWEST_SQL, (where, MAX_RECENT)):
                qualities.setdefault(section, quality)
    return qualities


def _inverse_frequency(count: int, total: int) -> float:
    """What BM25 multiplies the occurrences of a term by: the rarer it is, the more."""
    return max(math.log((total - count + 0.5) / (count + 0.5)), 1e-6)


def _matched_share(counts: Sequence[int], total: int) -> float:
    """How much of what a query asks for is there at all, by how telling its terms are."""
    telling = [math.log(1 + (total - min(n, total) + 0.5) / (n + 0.5)) for n in counts]
    return sum(worth for worth, n in zip(telling, counts, strict=True) if n) / sum(telling)


def _candidate_count(limit: int) -> int:
    return max(MIN_CANDIDATES, limit * 10)


_COUNT_SQL: Final = "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)"
_MATCH_SQL: Final = "SELECT rowid FROM words WHERE words MATCH ?"
# The weights are of names, headings, body and labels.
_RANK_SQL: Final = "SELECT rowid, bm25(words, 8.0, 4.0, 1.0, 3.0) FROM words WHERE words MATCH ?"
_NEWEST_SQL: Final = "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid DESC LIMIT ?"
_LOCATIONS_SQL: Final = (
    "SELECT s.id, n.mtime_ns, n.path, s.first FROM sections s JOIN notes n ON n.id = s.note"
    " WHERE s.id IN ({})"
)
_TEXTS_SQL: Final = (
    "SELECT s.id, s.last, n.title, s.headings, s.body FROM sections s"
    " JOIN notes n ON n.id = s.note WHERE s.id IN ({})"
)


def _read_sections(
    db: sqlite3.Connection, statement: str, sections: Collection[int]
) -> dict[int, tuple[Any, ...]]:
    """What a statement tells of some sections."""
    marks = ",".join("?" * len(sections))
    return {row[0]: row[1:] for row in db.execute(statement.format(marks), tuple(sections))}


def _score_sections(
    db: sqlite3.Connection, qualities: Mapping[int, float]
) -> Iterator[_ScoredSection]:
    now = time()
    for section, (mtime_ns, path, first) in _read_sections(db, _LOCATIONS_SQL, qualities).items():
        age = max(now - mtime_ns / 1e9, 0) / _SECONDS_PER_DAY
        recent = 1 + RECENCY_WEIGHT * 0.5 ** (age / HALF_LIFE_DAYS)
        score = min(qualities[section], 1.0) * recent / (1 + RECENCY_WEIGHT)
        yield _ScoredSection(-score, path, first, section)


def _spread(sections: Iterable[_ScoredSection]) -> Iterator[_ScoredSection]:
    """The sections in order, those that no longer fit beside others of their note last."""
    taken: dict[str, int] = {}
    late: list[_ScoredSection] = []
    for each in sections:
        taken[each.path] = taken.get(each.path, 0) + 1
        if taken[each.path] <= MAX_SECTIONS_PER_NOTE:
            yield each
        else:
            late.append(each)
    yield from late
