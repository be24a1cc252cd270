"""Searches the sections of an index.

A term is searched as a word with its inflections, then as a prefix, then as a substring, and
finally without its ending. Sections are ranked by BM25 and by the age of their note:

    quality = BM25 of the section / BM25 of a section that repeats every term of the query
    score   = quality x (1 + 0.25 x 0.5^(age in days / 30)) / 1.25

BM25 costs more than a microsecond per matching section, so at most 1,500 are ranked. The rarest
terms choose them; a frequent term only adds to the score of sections that also have it, and a term
that is nearly everywhere adds nothing. If a query has only frequent terms, the sections with all of
them are used: those with the terms in the name of their note, else the most recent. Queries have no
operators except quotes.

FTS5 can list its words only by scanning the whole index. So they are also kept in a table that only
grows, and in memory as one text in which a substring is found quickly.
"""

from __future__ import annotations

import math
import re
import sqlite3
import threading
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from time import time
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec.structs import replace

from dodona.core.domain.knowledge.notes import NoteHit
from dodona.tools.rebuildable_db import FileIdentity

MAX_EXPANDED_WORDS: Final = 20  # words that a substring may expand to
MAX_SECTIONS_PER_NOTE: Final = 2  # further hits of a note rank last
MAX_WHOLE_CHARS: Final = 2_400  # of a section that is put together from its parts
MAX_TABLE_CHARS: Final = 4_000  # of a section that would be divided inside a table
MAX_RANKED: Final = 1_500
MAX_COUNTED: Final = 6_000  # a term in more sections counts as being everywhere
MAX_RECENT: Final = 300
MAX_OTHER_TERMS: Final = 4  # frequent terms that are considered
TERM_CACHE_SIZE: Final = 10_000
MIN_CANDIDATES: Final = 50  # sections whose age is considered
RECENCY_WEIGHT: Final = 0.25
HALF_LIFE_DAYS: Final = 30.0

_SECONDS_PER_DAY: Final = 86_400
_BM25_K1: Final = 1.2  # saturation: repeated words count less
_FENCE: Final = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)
_NAME_WEIGHT: Final = 8.0


class _ScoredSection(NamedTuple):
    """A section; sorts best first."""

    negative_score: float
    path: str
    first: int
    section: int


@dataclass(frozen=True, slots=True)
class _Term:
    """An expression with matches, and the number of matching sections."""

    expression: str
    count: int


_TermCache: TypeAlias = "dict[str, _Term | None]"


class SectionSearcher:
    """Searches one index; `identity` is that of its file. Thread-safe.

    Resolved terms are cached until the index changes: frequent terms take longest to count and
    occur in nearly every query.
    """

    def __init__(self) -> None:
        self._vocabulary = Vocabulary()
        self._term_cache: tuple[tuple[FileIdentity, int, int], _TermCache] = (((0, 0), 0, 0), {})

    def search(
        self, db: sqlite3.Connection, query: str, *, limit: int, identity: FileIdentity
    ) -> list[NoteHit]:
        """Return up to `limit` of the best sections."""
        best = self._best_sections(db, terms_of(query), limit=limit, identity=identity)
        texts = _read_sections(db, _TEXTS_SQL, [section.section for section in best])
        return [
            NoteHit(
                section.path, section.first, *texts[section.section], score=-section.negative_score
            )
            for section in best
        ]

    def search_sections(
        self, db: sqlite3.Connection, words: Sequence[str], *, limit: int, identity: FileIdentity
    ) -> list[NoteHit]:
        """Return the sections that contain the best matches for any of the words, unranked.

        A long section is indexed in parts; here it is whole again, up to `MAX_WHOLE_CHARS`.
        """
        best = self._best_sections(db, words, limit=limit, identity=identity)
        chosen = {each.section for each in best}
        nearby = {section + offset for section in chosen for offset in range(-2, 3)}
        rows = sorted(_read_sections(db, _PARTS_SQL, nearby).items())
        return [hit for ids, hit in _join_parts(rows) if not chosen.isdisjoint(ids)]

    def search_paths(
        self, db: sqlite3.Connection, query: str, *, limit: int, identity: FileIdentity
    ) -> list[str]:
        """Return the notes of the best sections, without duplicates."""
        best = self._best_sections(db, terms_of(query), limit=limit, identity=identity)
        return list(dict.fromkeys(section.path for section in best))

    def _best_sections(
        self, db: sqlite3.Connection, terms: Sequence[str], *, limit: int, identity: FileIdentity
    ) -> list[_ScoredSection]:
        last, total = db.execute("SELECT last_section, sections FROM state").fetchone()
        cache = self._term_cache_for((identity, last, total))
        for term in terms:
            if term not in cache:
                cache[term] = self._resolve_term(db, term, identity)
        resolved = [cache[term] for term in terms]
        matching = sorted(filter(None, resolved), key=lambda term: term.count)
        if not matching:
            return []
        is_rare = matching[0].count <= MAX_RANKED
        qualities = (_by_rarest if is_rare else _by_name_and_age)(db, matching, total)
        share = _matched_share([term.count if term else 0 for term in resolved], total)
        chosen = sorted(qualities, key=qualities.__getitem__, reverse=True)[
            : _candidate_count(limit)
        ]
        scored = sorted(
            _score_sections(db, {section: qualities[section] * share for section in chosen})
        )
        return list(islice(_spread(scored), limit))

    def _term_cache_for(self, state: tuple[FileIdentity, int, int]) -> _TermCache:
        """Return the term cache for a state of the index. An older state gets a new one."""
        cached_state, terms = self._term_cache
        if cached_state != state or len(terms) > TERM_CACHE_SIZE:
            terms = {}
            self._term_cache = (state, terms)
        return terms

    def _resolve_term(
        self, db: sqlite3.Connection, term: str, identity: FileIdentity
    ) -> _Term | None:
        """Return the first expression for a term that has matches."""
        for expression in filter(None, self._candidate_expressions(db, term, identity)):
            (count,) = db.execute(_COUNT_SQL, (expression, MAX_COUNTED + 1)).fetchone()
            if count:
                return _Term(expression, count)
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
    """Rate the sections with a rare term; other terms only add to that."""
    counts = accumulate(term.count for term in terms)
    rare = [term for term, count in zip(terms, counts, strict=True) if count <= MAX_RANKED]
    others = [term for term in terms[len(rare) :] if term.count <= MAX_COUNTED][:MAX_OTHER_TERMS]
    ideal = (1 + _BM25_K1) * sum(_inverse_frequency(term.count, total) for term in (*rare, *others))
    expression = any_of([term.expression for term in rare])
    rows = db.execute(_RANK_SQL, (expression,))
    qualities = {section: -rank / ideal for section, rank in rows}
    for term in others:
        gain = _inverse_frequency(term.count, total) / ideal
        for (section,) in db.execute(_MATCH_SQL, (all_of([expression, term.expression]),)):
            qualities[section] += gain
    return qualities


def _by_name_and_age(
    db: sqlite3.Connection, terms: Sequence[_Term], total: int
) -> dict[int, float]:
    """Rate the newest sections with all of some frequent terms, in names before in text."""
    significant = [term for term in terms if term.count <= MAX_COUNTED] or list(terms)
    ideal = (1 + _BM25_K1) * sum(_inverse_frequency(term.count, total) for term in significant)
    qualities: dict[int, float] = {}
    for subset in (significant[:MAX_OTHER_TERMS], significant[:1]):
        in_text = sum(_inverse_frequency(term.count, total) for term in subset) / ideal
        expression = all_of([term.expression for term in subset])
        in_name = in_text * _NAME_WEIGHT * (1 + _BM25_K1) / (_NAME_WEIGHT + _BM25_K1)
        for match, quality in ((in_names_and_labels(expression), in_name), (expression, in_text)):
            for (section,) in db.execute(_NEWEST_SQL, (match, MAX_RECENT)):
                qualities.setdefault(section, quality)
    return qualities


def count_words(db: sqlite3.Connection, words: Iterable[str]) -> tuple[int, dict[str, int]]:
    """Return the number of sections, and for each word how many have it, up to a maximum."""
    (total,) = db.execute("SELECT sections FROM state").fetchone()
    counts = {
        word: db.execute(_COUNT_SQL, (phrase_expression(word), MAX_COUNTED + 1)).fetchone()[0]
        for word in words
    }
    return total, counts


def _inverse_frequency(count: int, total: int) -> float:
    """Return the IDF of BM25: higher for rarer terms."""
    return max(math.log((total - count + 0.5) / (count + 0.5)), 1e-6)


def _matched_share(counts: Sequence[int], total: int) -> float:
    """Return the share of the query's terms that occur at all, weighted by rarity."""
    weights = [math.log(1 + (total - min(n, total) + 0.5) / (n + 0.5)) for n in counts]
    return sum(weight for weight, n in zip(weights, counts, strict=True) if n) / sum(weights)


def _candidate_count(limit: int) -> int:
    return max(MIN_CANDIDATES, limit * 10)


_COUNT_SQL: Final = "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)"
_MATCH_SQL: Final = "SELECT rowid FROM words WHERE words MATCH ?"
# The weights are for names, headings, body and labels.
_RANK_SQL: Final = "SELECT rowid, bm25(words, 8.0, 4.0, 1.0, 3.0) FROM words WHERE words MATCH ?"
_NEWEST_SQL: Final = "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid DESC LIMIT ?"
_LOCATIONS_SQL: Final = (
    "SELECT s.id, n.mtime_ns, n.path, s.first FROM sections s JOIN notes n ON n.id = s.note"
    " WHERE s.id IN ({})"
)
_PARTS_SQL: Final = (
    "SELECT s.id, n.path, s.first, s.last, n.title, s.headings, s.body FROM sections s"
    " JOIN notes n ON n.id = s.note WHERE s.id IN ({})"
)
_TEXTS_SQL: Final = (
    "SELECT s.id, s.last, n.title, s.headings, s.body FROM sections s"
    " JOIN notes n ON n.id = s.note WHERE s.id IN ({})"
)


def _read_sections(
    db: sqlite3.Connection, statement: str, sections: Collection[int]
) -> dict[int, tuple[Any, ...]]:
    """Run a statement for some sections; return the rows by section id."""
    placeholders = ",".join("?" * len(sections))
    return {row[0]: row[1:] for row in db.execute(statement.format(placeholders), tuple(sections))}


def _join_parts(rows: Iterable[tuple[int, tuple[Any, ...]]]) -> Iterator[tuple[set[int], NoteHit]]:
    """Yield sections with the ids of their parts; rows are (id, part), in order.

    A long section is divided again, but not inside a fence, nor in a table that a quote can show.
    """
    ids: set[int] = set()
    joined: NoteHit | None = None
    for section, row in rows:
        part = NoteHit(*row)
        if joined and section - 1 in ids and _may_join(joined, part):
            text = joined.text + "\n" * (part.first - joined.last) + part.text
            joined = replace(joined, last=part.last, text=text)
            ids.add(section)
            continue
        if joined:
            yield ids, joined
        ids, joined = {section}, part
    if joined:
        yield ids, joined


def _may_join(section: NoteHit, part: NoteHit) -> bool:
    if (section.path, section.headings) != (part.path, part.headings):
        return False
    chars = len(section.text) + len(part.text)
    is_fence_open = len(_FENCE.findall(section.text)) % 2 == 1
    is_table = section.text.rpartition("\n")[2].startswith("|") and part.text.startswith("|")
    return is_fence_open or chars <= (MAX_TABLE_CHARS if is_table else MAX_WHOLE_CHARS)


def _score_sections(
    db: sqlite3.Connection, qualities: Mapping[int, float]
) -> Iterator[_ScoredSection]:
    now = time()
    for section, (mtime_ns, path, first) in _read_sections(db, _LOCATIONS_SQL, qualities).items():
        age = max(now - mtime_ns / 1e9, 0) / _SECONDS_PER_DAY
        recency = 1 + RECENCY_WEIGHT * 0.5 ** (age / HALF_LIFE_DAYS)
        score = min(qualities[section], 1.0) * recency / (1 + RECENCY_WEIGHT)
        yield _ScoredSection(-score, path, first, section)


def _spread(sections: Iterable[_ScoredSection]) -> Iterator[_ScoredSection]:
    """Yield the sections in order; those beyond the limit per note come last."""
    counts: dict[str, int] = {}
    deferred: list[_ScoredSection] = []
    for section in sections:
        counts[section.path] = counts.get(section.path, 0) + 1
        if counts[section.path] <= MAX_SECTIONS_PER_NOTE:
            yield section
        else:
            deferred.append(section)
    yield from deferred


# -- queries ---------------------------------------------------------------------------------------

MAX_QUERY_CHARS: Final = 1_000
MAX_TERMS: Final = 24
MIN_PART_CHARS: Final = 3  # minimum length for prefix and substring search
MIN_STEM_CHARS: Final = 5

_PHRASE = re.compile(r'"([^"]{2,100})"|“([^”]{2,100})”|„([^“”]{2,100})[“”]|«([^»]{2,100})»')
_WORD = re.compile(r"\w+(?:[-.'’:/]\w+)*")


def terms_of(query: str) -> list[str]:
    """Return the distinct words and quoted phrases of a query."""
    text = query[:MAX_QUERY_CHARS]
    phrases = ["".join(match.groups(default="")) for match in _PHRASE.finditer(text)]
    words = _WORD.findall(_PHRASE.sub(" ", text))
    terms = [" ".join(_WORD.findall(phrase)) for phrase in phrases] + words
    by_key = {term.casefold(): term for term in terms if any(map(str.isalnum, term))}
    return list(by_key.values())[:MAX_TERMS]


def phrase_expression(term: str) -> str:
    """Return an expression for a word or phrase, including inflections."""
    return f'"{term}"'  # a term contains no quotes


def prefix_expression(term: str) -> str:
    """Return an expression for words with this prefix; "" if it is too short."""
    return (
        f"{phrase_expression(term)} *" if len(term) >= MIN_PART_CHARS or not term.isascii() else ""
    )


def stems(term: str) -> Iterator[str]:
    """Yield a word without its last letters: the tokenizer only stems English."""
    if term.isalpha():
        for end in range(len(term) - 1, max(len(term) - 4, MIN_STEM_CHARS - 1), -1):
            yield term[:end]


def substring_of(term: str) -> str:
    """Return the text to search for within indexed words; "" if it is too short.

    In scripts without spaces, two characters carry more meaning than three in others.
    """
    decomposed = unicodedata.normalize("NFD", term)
    folded = "".join(c for c in decomposed if not unicodedata.combining(c)).lower()
    is_word = folded.isalpha() and len(folded) >= (MIN_PART_CHARS if folded.isascii() else 2)
    return unicodedata.normalize("NFC", folded) if is_word else ""


def any_of(expressions: Sequence[str]) -> str:
    """Join expressions with OR."""
    return " OR ".join(expressions)


def all_of(expressions: Sequence[str]) -> str:
    """Join expressions with AND."""
    return " AND ".join(f"({expression})" for expression in expressions)


def in_names_and_labels(expression: str) -> str:
    """Restrict an expression to names and labels."""
    return f"{{names labels}} : ({expression})"


# -- vocabulary ------------------------------------------------------------------------------------

FULL_SCAN_THRESHOLD: Final = 3_000  # with more new sections, a scan of all words is faster
MAX_CANDIDATES: Final = 500


def add_new_terms(db: sqlite3.Connection) -> None:
    """Add the words of sections added since the last call. Needs a transaction."""
    last, last_learnt = db.execute("SELECT last_section, last_learnt FROM state").fetchone()
    if last == last_learnt:
        return
    if last - last_learnt > FULL_SCAN_THRESHOLD:
        db.execute("INSERT OR IGNORE INTO terms (term) SELECT term FROM vocabulary")
    else:
        _add_terms_since(db, last_learnt)
    db.execute("UPDATE state SET last_learnt = ?", (last,))


def _add_terms_since(db: sqlite3.Connection, last_section: int) -> None:
    """Add the words of new sections, through a temporary index of these sections."""
    db.execute(
        "CREATE VIRTUAL TABLE IF NOT EXISTS temp.fresh"
        " USING fts5 (a, b, c, d, content='', tokenize='porter unicode61 remove_diacritics 2')"
    )
    db.execute(
        "CREATE VIRTUAL TABLE IF NOT EXISTS temp.fresh_words USING fts5vocab (temp, fresh, row)"
    )
    db.execute(
        "INSERT INTO temp.fresh (rowid, a, b, c, d)"
        " SELECT s.id, n.names, s.headings, s.body, n.labels FROM sections s"
        " JOIN notes n ON n.id = s.note WHERE s.id > ?",
        (last_section,),
    )
    db.execute("INSERT OR IGNORE INTO terms (term) SELECT term FROM temp.fresh_words")
    db.execute("INSERT INTO temp.fresh (fresh) VALUES ('delete-all')")


class Vocabulary:
    """The words in memory. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._identity: FileIdentity | None = None
        self._last_term_id = 0
        self._text = "\n"

    def words_containing(
        self, db: sqlite3.Connection, part: str, *, identity: FileIdentity, limit: int
    ) -> list[str]:
        """Return the shortest words that contain a substring: they match it most closely."""
        text = self._load_new_terms(db, identity)
        return (
            sorted(islice(_lines_containing(text, part), MAX_CANDIDATES), key=len)[:limit]
            if part
            else []
        )

    def _load_new_terms(self, db: sqlite3.Connection, identity: FileIdentity) -> str:
        with self._lock:
            if self._identity != identity:
                self._identity, self._last_term_id, self._text = identity, 0, "\n"
            rows = db.execute(
                "SELECT id, term FROM terms WHERE id > ? ORDER BY id", (self._last_term_id,)
            ).fetchall()
            if rows:
                self._last_term_id = rows[-1][0]
                self._text += "".join(f"{term}\n" for _, term in rows)
            return self._text


def _lines_containing(text: str, part: str) -> Iterator[str]:
    """Yield the lines that contain a substring. The text starts and ends with a newline."""
    at = text.find(part)
    while at >= 0:
        end = text.index("\n", at)
        yield text[text.rindex("\n", 0, at) + 1 : end]
        at = text.find(part, end)
