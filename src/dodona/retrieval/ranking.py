"""Ranks documents for a question by BM25 over their title, headings and body.

    score = weight × (BM25 + proximity + 0.2 × BM25 of the group)

A group is the note or file that a document is part of. Proximity rewards words of the question that
are near each other. `coverage` is the share of the question's words that a document has, weighted
by their rarity: a word that occurs nowhere weighs most.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from dodona.retrieval.synonyms import SYNONYMS
from dodona.retrieval.words import terms_in

K1: Final = 1.0
BODY_LENGTH_WEIGHT: Final = 0.5  # how much the length of a body matters
TITLE_WEIGHT: Final = 1.5
HEADING_WEIGHT: Final = 2.5
GROUP_WEIGHT: Final = 0.2
PROXIMITY_WEIGHT: Final = 1.5
WINDOW: Final = 10  # words between which two words are near each other
MISSING_WEIGHT: Final = 0.4  # in the coverage, of a word that other documents have
# In a project with two notes, a word that both have is not meaningless.
UNKNOWN_DOCUMENTS: Final = 100
SYNONYM_WEIGHT: Final = 0.3  # of a synonym, relative to the word itself
UNSEEN_WEIGHT: Final = 1.3  # of a word that occurs nowhere, relative to one that occurs once


@dataclass(frozen=True, slots=True)
class TextUnit:
    """A text to rank. `weight` is its prior; documents of a `group` support each other."""

    title: str
    headings: str
    body: str
    group: str = ""
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Frequencies:
    """The number of documents in a corpus, and how many of them have each term."""

    total: int
    counts: Mapping[str, int]
    common: frozenset[str] = frozenset()  # terms whose absence says nothing

    def weight(self, term: str) -> float:
        """Return the IDF of BM25: higher for rarer terms."""
        count = min(self.counts.get(term, 0), self.total)
        total = self.total + UNKNOWN_DOCUMENTS
        weight = math.log(1 + (total - count + 0.5) / (count + 0.5))
        return weight if count else UNSEEN_WEIGHT * weight

    def says_nothing_without(self, term: str) -> bool:
        """Whether a document may treat the subject of a question without this term."""
        return term in self.common or self.counts.get(term, 0) > 0


@dataclass(frozen=True, slots=True)
class Ranked:
    """A document by its index, with its score and the share of the question that it covers."""

    index: int
    score: float
    coverage: float


def rank(
    terms: Mapping[str, float], documents: Sequence[TextUnit], frequencies: Frequencies
) -> list[Ranked]:
    """Return the documents with at least one of the terms, best first.

    The value of a term is its weight in the question, usually 1.
    """
    weights = {term: weight * frequencies.weight(term) for term, weight in terms.items()}
    query = _QueryTerms(terms)
    analysed = [_Analysed.of(document, query) for document in documents]
    mean = sum(each.length for each in analysed) / max(1, len(analysed)) or 1.0
    scores = [each.score(weights, mean) for each in analysed]
    groups = _group_scores(documents, analysed, weights)
    ranked = [
        Ranked(
            index,
            document.weight * (score + GROUP_WEIGHT * groups.get(document.group, 0.0)),
            _coverage(each.present, weights, frequencies),
        )
        for index, (document, each, score) in enumerate(
            zip(documents, analysed, scores, strict=True)
        )
        if score
    ]
    return sorted(ranked, key=lambda each: (-each.score, each.index))


class _QueryTerms:
    """The terms of a question. `meant` maps each of them, and each synonym, to the term."""

    def __init__(self, terms: Iterable[str]) -> None:
        self._terms = frozenset(terms)
        self.meant = {term: term for term in self._terms}
        for term in sorted(self._terms):
            for synonym in SYNONYMS.get(term, ()):
                self.meant.setdefault(synonym, term)

    def count(self, words: Iterable[str]) -> dict[str, float]:
        """Return how often each term occurs; a synonym counts as a part."""
        counts: dict[str, float] = {}
        for word in words:
            if word in self.meant:
                term = self.meant[word]
                counts[term] = counts.get(term, 0.0) + self._value(word)
        return counts

    def find(self, words: Iterable[str]) -> dict[str, float]:
        """Return the terms that occur; a synonym counts as a part."""
        found: dict[str, float] = {}
        for word in words:
            if word in self.meant:
                term = self.meant[word]
                found[term] = max(found.get(term, 0.0), self._value(word))
        return found

    def _value(self, word: str) -> float:
        return 1.0 if word in self._terms else SYNONYM_WEIGHT


@dataclass(frozen=True, slots=True)
class _Analysed:
    """The occurrences of the question's terms in a document; synonyms count less."""

    titles: Mapping[str, float]
    headings: Mapping[str, float]
    body: Mapping[str, float]
    positions: Sequence[tuple[int, str]]  # in the body
    length: int

    @classmethod
    def of(cls, document: TextUnit, terms: _QueryTerms) -> _Analysed:
        body = terms_in(document.body)
        positions = [(at, terms.meant[term]) for at, term in enumerate(body) if term in terms.meant]
        return cls(
            terms.find(terms_in(document.title)),
            terms.find(terms_in(document.headings)),
            terms.count(body),
            positions,
            len(body),
        )

    @property
    def present(self) -> set[str]:
        return {*self.titles, *self.headings, *self.body}

    def score(self, weights: Mapping[str, float], mean_length: float) -> float:
        norm = 1 - BODY_LENGTH_WEIGHT + BODY_LENGTH_WEIGHT * self.length / mean_length
        score = 0.0
        for term in sorted(self.present):
            frequency = (
                TITLE_WEIGHT * self.titles.get(term, 0.0)
                + HEADING_WEIGHT * self.headings.get(term, 0.0)
                + self.body.get(term, 0.0) / norm
            )
            score += weights[term] * frequency * (K1 + 1) / (frequency + K1)
        return score + PROXIMITY_WEIGHT * sum(self._nearest_pairs(weights).values())

    def _nearest_pairs(self, weights: Mapping[str, float]) -> dict[frozenset[str], float]:
        """Return for each pair of terms that are neighbours in the body the best closeness."""
        best: dict[frozenset[str], float] = {}
        for (first, one), (second, other) in pairwise(self.positions):
            if one != other and second - first <= WINDOW:
                pair = frozenset((one, other))
                closeness = min(weights[one], weights[other]) / math.sqrt(max(second - first, 1))
                best[pair] = max(best.get(pair, 0.0), closeness)
        return best


def _group_scores(
    documents: Sequence[TextUnit], analysed: Sequence[_Analysed], weights: Mapping[str, float]
) -> dict[str, float]:
    """Return for each group the weight of the terms in it, more if several documents have them."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for document, each in zip(documents, analysed, strict=True):
        if document.group:
            counts[document.group].update(each.present)
    return {
        group: sum(weights[term] * count / (count + K1) for term, count in sorted(terms.items()))
        for group, terms in counts.items()
    }


def _coverage(present: set[str], weights: Mapping[str, float], frequencies: Frequencies) -> float:
    """Return the share of the question that a document covers.

    People use other words than the authors, so a missing word is no proof, except for one that
    occurs nowhere: then the project does not treat its subject.
    """
    covered = sum(weights[term] for term in present)
    missing = sum(
        weight * (MISSING_WEIGHT if frequencies.says_nothing_without(term) else 1.0)
        for term, weight in weights.items()
        if term not in present
    )
    return covered / (covered + missing) if covered else 0.0
