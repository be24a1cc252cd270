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
from dodona.tools.rebuildable_db import Identity
from dodona.tools.vault.index.query import (
    all_of,
    beginning,
    either,
    named,
    part,
    stems,
    terms_of,
    whole,
)
from dodona.tools.vault.index.vocabulary import Vocabulary

MOST_WORDS: Final = 20  # that a part of a word may stand for
MOST_PER_NOTE: Final = 2  # sections of one note among the hits: others may know something too
MOST_RANKED: Final = 1_500
MOST_COUNTED: Final = 6_000  # what is in more sections is everywhere
MOST_RECENT: Final = 300
MOST_OTHERS: Final = 4  # terms beside the rare ones that are looked at
MOST_REMEMBERED: Final = 10_000  # terms
LEAST_CANDIDATES: Final = 50  # of which the age is looked at
RECENT_WEIGHT: Final = 0.25
HALF_LIFE_DAYS: Final = 30.0

_SECONDS_A_DAY: Final = 86_400
_SATURATION: Final = 1.2  # k1 of BM25: what a word says the second time is worth less
_NAME_WEIGHT: Final = 8.0


class _Scored(NamedTuple):
    """A section; in order, the best come first."""

    minus_score: float
    path: str
    first: int
    section: int


@dataclass(frozen=True, slots=True)
class _Term:
    """An expression that finds something, and in how many sections."""

    expression: str
    count: int


_Known: TypeAlias = "dict[str, _Term | None]"


class Finder:
    """Finds in one index, which is the file `of` this identity. For any number of threads.

    What a term finds is remembered until the index changes: the frequent ones, which take longest
    to count, are in nearly every question.
    """

    def __init__(self) -> None:
        self._vocabulary = Vocabulary()
        self._remembered: tuple[tuple[Identity, int, int], _Known] = (((0, 0), 0, 0), {})

    def search(
        self, db: sqlite3.Connection, query: str, *, limit: int, of: Identity
    ) -> list[NoteHit]:
        """The best sections, at most `limit` of them."""
        best = self._best(db, terms_of(query), limit=limit, of=of)
        texts = _read(db, _TEXTS, [each.section for each in best])
        return [
            NoteHit(each.path, each.first, *texts[each.section], score=-each.minus_score)
            for each in best
        ]

    def paths(self, db: sqlite3.Connection, query: str, *, limit: int, of: Identity) -> list[str]:
        """The notes of the best sections, each once."""
        best = self._best(db, terms_of(query), limit=limit, of=of)
        return list(dict.fromkeys(each.path for each in best))

    def _best(
        self, db: sqlite3.Connection, terms: Sequence[str], *, limit: int, of: Identity
    ) -> list[_Scored]:
        last, total = db.execute("SELECT last_section, sections FROM state").fetchone()
        remembered = self._remembered_of((of, last, total))
        for term in terms:
            if term not in remembered:
                remembered[term] = self._known(db, term, of)
        known = [remembered[term] for term in terms]
        found = sorted(filter(None, known), key=lambda term: term.count)
        if not found:
            return []
        is_rare = found[0].count <= MOST_RANKED
        qualities = (_by_rarest if is_rare else _by_name_and_age)(db, found, total)
        share = _share([term.count if term else 0 for term in known], total)
        chosen = sorted(qualities, key=qualities.__getitem__, reverse=True)[: _candidates(limit)]
        scored = sorted(_scored(db, {each: qualities[each] * share for each in chosen}))
        return list(islice(_spread(scored), limit))

    def _remembered_of(self, state: tuple[Identity, int, int]) -> _Known:
        """A thread that still sees an older state has terms of its own."""
        known_state, known = self._remembered
        if known_state != state or len(known) > MOST_REMEMBERED:
            known = {}
            self._remembered = (state, known)
        return known

    def _known(self, db: sqlite3.Connection, term: str, of: Identity) -> _Term | None:
        """The first expression for a term that finds something."""
        for form in filter(None, self._forms(db, term, of)):
            (count,) = db.execute(_COUNTED, (form, MOST_COUNTED + 1)).fetchone()
            if count:
                return _Term(form, count)
        return None

    def _forms(self, db: sqlite3.Connection, term: str, of: Identity) -> Iterator[str]:
        yield whole(term)
        yield beginning(term)
        words = self._vocabulary.containing(db, part(term), of=of, most=MOST_WORDS)
        yield either([whole(word) for word in words])
        yield from map(beginning, stems(term))


def _by_rarest(db: sqlite3.Connection, terms: Sequence[_Term], total: int) -> dict[int, float]:
    """Sections with a rare term; what else they say only adds to that."""
    counts = accumulate(term.count for term in terms)
    rare = [term for term, count in zip(terms, counts, strict=True) if count <= MOST_RANKED]
    others = [term for term in terms[len(rare) :] if term.count <= MOST_COUNTED][:MOST_OTHERS]
    ideal = (1 + _SATURATION) * sum(_worth(term.count, total) for term in (*rare, *others))
    expression = either([term.expression for term in rare])
    found = db.execute(_RANKED, (expression,))
    qualities = {section: -rank / ideal for section, rank in found}
    for term in others:
        more = _worth(term.count, total) / ideal
        for (section,) in db.execute(_MATCHED, (all_of([expression, term.expression]),)):
            qualities[section] += more
    return qualities


def _by_name_and_age(
    db: sqlite3.Connection, terms: Sequence[_Term], total: int
) -> dict[int, float]:
    """Sections with all of some frequent terms, in names before in text; of these the newest."""
    telling = [term for term in terms if term.count <= MOST_COUNTED] or list(terms)
    ideal = (1 + _SATURATION) * sum(_worth(term.count, total) for term in telling)
    qualities: dict[int, float] = {}
    for some in (telling[:MOST_OTHERS], telling[:1]):
        worth = sum(_worth(term.count, total) for term in some) / ideal
        expression = all_of([term.expression for term in some])
        in_name = worth * _NAME_WEIGHT * (1 + _SATURATION) / (_NAME_WEIGHT + _SATURATION)
        for where, quality in ((named(expression), in_name), (expression, worth)):
            for (section,) in db.execute(_NEWEST, (where, MOST_RECENT)):
                qualities.setdefault(section, quality)
    return qualities


def _worth(count: int, total: int) -> float:
    """What BM25 multiplies the occurrences of a term by: the rarer it is, the more."""
    return max(math.log((total - count + 0.5) / (count + 0.5)), 1e-6)


def _share(counts: Sequence[int], total: int) -> float:
    """How much of what a query asks for is there at all, by how telling its terms are."""
    telling = [math.log(1 + (total - min(n, total) + 0.5) / (n + 0.5)) for n in counts]
    return sum(worth for worth, n in zip(telling, counts, strict=True) if n) / sum(telling)


def _candidates(limit: int) -> int:
    return max(LEAST_CANDIDATES, limit * 10)


_COUNTED: Final = "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)"
_MATCHED: Final = "SELECT rowid FROM words WHERE words MATCH ?"
# The weights are of names, headings, body and labels.
_RANKED: Final = "SELECT rowid, bm25(words, 8.0, 4.0, 1.0, 3.0) FROM words WHERE words MATCH ?"
_NEWEST: Final = "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid DESC LIMIT ?"
_PLACES: Final = (
    "SELECT s.id, n.mtime_ns, n.path, s.first FROM sections s JOIN notes n ON n.id = s.note"
    " WHERE s.id IN ({})"
)
_TEXTS: Final = (
    "SELECT s.id, s.last, n.title, s.headings, s.body FROM sections s"
    " JOIN notes n ON n.id = s.note WHERE s.id IN ({})"
)


def _read(
    db: sqlite3.Connection, statement: str, sections: Collection[int]
) -> dict[int, tuple[Any, ...]]:
    """What a statement tells of some sections."""
    marks = ",".join("?" * len(sections))
    return {row[0]: row[1:] for row in db.execute(statement.format(marks), tuple(sections))}


def _scored(db: sqlite3.Connection, qualities: Mapping[int, float]) -> Iterator[_Scored]:
    now = time()
    for section, (mtime_ns, path, first) in _read(db, _PLACES, qualities).items():
        age = max(now - mtime_ns / 1e9, 0) / _SECONDS_A_DAY
        recent = 1 + RECENT_WEIGHT * 0.5 ** (age / HALF_LIFE_DAYS)
        score = min(qualities[section], 1.0) * recent / (1 + RECENT_WEIGHT)
        yield _Scored(-score, path, first, section)


def _spread(sections: Iterable[_Scored]) -> Iterator[_Scored]:
    """The sections in order, those that no longer fit beside others of their note last."""
    taken: dict[str, int] = {}
    late: list[_Scored] = []
    for each in sections:
        taken[each.path] = taken.get(each.path, 0) + 1
        if taken[each.path] <= MOST_PER_NOTE:
            yield each
        else:
            late.append(each)
    yield from late
