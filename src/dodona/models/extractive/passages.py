"""What tools returned, cut into passages that can be quoted, and ranked by what was asked.

A result may be JSON (records with a path and a text), lines of `path:line: text`, blocks below a
head of `path:first-last  title`, or plain text. Of each, only the first `MAX_TEXT_CHARS` characters and
`MOST_LINES` lines are read: an answer must be instant, whatever a tool returned, and what a tool
puts first is what it thinks best.
"""

from __future__ import annotations

import math
import operator
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, pairwise
from textwrap import dedent
from typing import Any, Final, cast

import jiter

from dodona.core.messages import ToolResult
from dodona.models.extractive.terms import term_patterns

MAX_TEXT_CHARS: Final = 32_768
MAX_LINES: Final = 2_000
MAX_PASSAGES: Final = 300
MAX_PASSAGE_CHARS: Final = 500
MAX_CANDIDATES: Final = 100  # passages that are looked at again for each that is chosen
MAX_SELECTED: Final = 12
TITLE_WEIGHT: Final = 0.75  # what a term in the title adds
HEADING_WEIGHT: Final = 0.3  # … and one in the heading that begins a note
REPEATED_TERM_WEIGHT: Final = 0.5  # what a term is worth that an earlier passage has
MIN_SCORE_RATIO: Final = 0.25  # of the best passage's score that another needs to be quoted
MIN_TERM_COVERAGE: Final = (
    0.3  # of the weight of all terms that they must have, if not half of them
)

_PATH_KEYS: Final = ("path", "file", "file_path", "source", "url")
_FIRST_LINE_KEYS: Final = ("line", "start_line", "line_start", "line_number")
_LAST_LINE_KEYS: Final = ("end_line", "line_end")
_TEXT_KEYS: Final = frozenset(
    {"body", "content", "excerpt", "match", "quote", "result", "snippet", "summary", "text"}
)
_GREP_LINE = re.compile(
    r"([^\s:][^:\n]{0,200}\.[A-Za-z]\w{0,5}):(\d{1,7})(?::\d{1,7})?[:\s]\s?(.*)"
)
_LOCATION_HEADER = re.compile(
    r"([^\s:][^:\n]{0,200}\.[A-Za-z]\w{0,5}):(\d{1,7})-(\d{1,7})(?:[ \t]+([^\n]{0,400}))?"
)
_SENTENCE_END = re.compile(r"(?<=[.!?…。])\s+|\n")


@dataclass(frozen=True, slots=True)
class Passage:
    """Some lines of a result. `first` and `last` are line numbers, 0 when nobody says.

    An empty text stands for a record that names a path and quotes nothing of it. `about` is the
    title that the result gave it, which is not part of the text.
    """

    text: str
    tool: str
    path: str = ""
    first_line: int = 0
    last_line: int = 0
    title: str = ""


def split_passages(result: ToolResult, path: str = "") -> list[Passage]:
    """The passages of a result, in its order; `path` is the file that the call asked for."""
    text = result.text[:MAX_TEXT_CHARS]
    start = Passage("", result.name, path)
    found = _split_text(text, start)
    if text.lstrip()[:1] in {"{", "["}:
        is_cut = len(result.text) > MAX_TEXT_CHARS
        try:
            value = jiter.from_json(
                text.encode("utf-8", "replace"),
                partial_mode="trailing-strings" if is_cut else "off",
            )
        except ValueError:
            pass  # it only looked like JSON
        else:
            found = _split_json(value, start)
    return list(islice(found, MAX_PASSAGES))


def _split_json(value: object, location: Passage) -> Iterator[Passage]:
    """Every text in a value, placed by the path and lines of the nearest record around it."""
    if isinstance(value, str):
        yield from _split_text(value, location)
    elif isinstance(value, list):
        for item in cast(list[object], value):
            yield from _split_json(item, location)
    elif isinstance(value, Mapping):
        yield from _split_record(cast(Mapping[str, Any], value), location)


def _split_record(record: Mapping[str, Any], location: Passage) -> Iterator[Passage]:
    path = next((record[key] for key in _PATH_KEYS if isinstance(record.get(key), str)), "")
    first = _line_number(record, _FIRST_LINE_KEYS)
    if path:
        location = replace(
            location, path=path, first_line=first, last_line=_line_number(record, _LAST_LINE_KEYS)
        )
    elif first:
        location = replace(
            location, first_line=first, last_line=_line_number(record, _LAST_LINE_KEYS)
        )
    is_bare = True
    for key, value in record.items():
        if key in _PATH_KEYS or (isinstance(value, str) and not _is_prose(key, value)):
            continue
        for passage in _split_json(value, location):
            is_bare = False
            yield passage
    if path and is_bare:
        yield location


def _line_number(record: Mapping[str, Any], keys: Sequence[str]) -> int:
    numbers = (record.get(key) for key in keys)
    return next((n for n in numbers if type(n) is int and 0 < n < 10_000_000), 0)


def _is_prose(key: str, value: str) -> bool:
    """Is a field worth quoting? Ids, dates and the like are not."""
    return key in _TEXT_KEYS or (len(value) >= 16 and " " in value.strip())


def _split_text(text: str, location: Passage) -> Iterator[Passage]:
    """Paragraphs of a text; what stands below a head is placed by it."""
    lines = text.splitlines()[:MAX_LINES]
    heads = [at for at, line in enumerate(lines) if _is_location_header(line, at, location)]
    yield from _split_paragraphs(lines[: heads[0]] if heads else lines, location)
    for at, end in pairwise([*heads, len(lines)]):
        head = _LOCATION_HEADER.fullmatch(lines[at].rstrip())
        assert head
        below = dedent("\n".join(lines[at + 1 : end])).split("\n")
        yield from _split_paragraphs(below, _location_from_header(location, head))


def _is_location_header(line: str, at: int, location: Passage) -> bool:
    """Inside a file only the first line can be one: it must not pass for a place in another."""
    head = _LOCATION_HEADER.fullmatch(line.rstrip())
    return head is not None and (not location.path or (at == 0 and head[1] == location.path))


def _location_from_header(location: Passage, head: re.Match[str]) -> Passage:
    return replace(
        location,
        path=head[1].strip(),
        first_line=int(head[2]),
        last_line=int(head[3]),
        title=head[4] or "",
    )


def _split_paragraphs(lines: Sequence[str], location: Passage) -> Iterator[Passage]:
    """Paragraphs; lines that begin with a path and a number stand for themselves."""
    block: list[str] = []
    first = location.first_line
    skipped = _front_matter_lines(lines, location)
    for number, line in enumerate(lines[skipped:], start=location.first_line + skipped):
        # Inside a file such a line is only text, as a head is.
        hit = None if location.path else _GREP_LINE.match(line)
        is_blank = not line.strip()
        if block and (hit or (is_blank and not _is_only_heading(block))):
            yield from _split_block(block, replace(location, first_line=first))
            block = []
        if hit:
            at = int(hit[2])
            yield Passage(hit[3][:MAX_PASSAGE_CHARS], location.tool, hit[1].strip(), at, at)
        elif block:
            block.append(line)
        elif not is_blank:
            block, first = [line], number if location.first_line else 0
    if block:
        yield from _split_block(block, replace(location, first_line=first))


def _front_matter_lines(lines: Sequence[str], location: Passage) -> int:
    """How many lines at the beginning of a file say something about it and nothing of it."""
    if location.first_line != 1 or not lines or lines[0].rstrip() != "---":
        return 0
    ends = (at for at, line in enumerate(lines[1:100], start=2) if line.rstrip() == "---")
    return next(ends, 0)


def _is_only_heading(block: Sequence[str]) -> bool:
    """A heading says what the paragraph under it is about, so they stay together."""
    return block[0].lstrip().startswith("#") and (len(block) == 1 or not block[-1].strip())


def _split_block(lines: Sequence[str], location: Passage) -> Iterator[Passage]:
    """A paragraph as one passage, or as several when it is long."""
    text = "\n".join(lines).rstrip()
    end = location.last_line or location.first_line + len(lines)
    for at, piece in _split_long_text(text):
        if not location.first_line:
            yield replace(location, text=piece, last_line=0)
            continue
        first = min(location.first_line + text.count("\n", 0, at), end)
        last = min(first + piece.count("\n"), end)
        yield replace(location, text=piece, first_line=first, last_line=last)


def _split_long_text(text: str) -> Iterator[tuple[int, str]]:
    """The text in order, cut behind sentences and lines, else at a space, else anywhere.

    Each with its place in the text.
    """
    at = 0
    while len(text) - at > MAX_PASSAGE_CHARS:
        end = at + MAX_PASSAGE_CHARS
        ends = [found.end() for found in _SENTENCE_END.finditer(text, at, end)]
        cut = ends[-1] if ends else text.rfind(" ", at, end) + 1 or end
        if piece := text[at:cut].rstrip():
            yield at, piece
        at = cut
    if text[at:].strip():
        yield at, text[at:]


def rank_passages(passages: Sequence[Passage], terms: Sequence[str]) -> list[tuple[float, Passage]]:
    """Passages with their scores, best first; equal ones stay in order."""
    ranking = _PassageRanker(passages, terms)
    scores = [ranking.score(at) for at in range(len(passages))]
    return sorted(zip(scores, passages, strict=True), key=lambda pair: -pair[0])


def select_passages(
    passages: Sequence[Passage], terms: Sequence[str], *, identifiers: Sequence[str] = ()
) -> list[tuple[float, Passage]]:
    """The passages to quote: the best, then what adds to it; none if they miss what was asked.

    What others before it have counts for less in a passage, so a question about two things is
    answered from the sources of both. Who asks for one of the `identifiers` is answered by it.
    """
    ranking = _PassageRanker(passages, terms)
    left = sorted(range(len(passages)), key=ranking.score, reverse=True)[:MAX_CANDIDATES]
    chosen: list[tuple[float, Passage]] = []
    while left and len(chosen) < MAX_SELECTED:
        score, at = max(((ranking.score(at), at) for at in left), key=lambda pair: pair[0])
        if score <= 0 or (chosen and score < MIN_SCORE_RATIO * chosen[0][0]):
            break
        left.remove(at)
        ranking.mark_chosen(at)
        chosen.append((score, passages[at]))
    is_named = any(name in passage.text for name in identifiers for _, passage in chosen)
    return chosen if is_named or ranking.covers_enough() else []


class _PassageRanker:
    """What the terms weigh, which passages have them, and which terms were chosen already.

    Each term that occurs counts once, the more the fewer passages have it; one that the title or
    a note's heading has counts more. Long passages need more.
    """

    def __init__(self, passages: Sequence[Passage], terms: Sequence[str]) -> None:
        expressions = list(term_patterns(terms))
        pattern = re.compile("|".join(f"({expression})" for expression in expressions) or r"(?!)")
        self._text_terms = [_matching_terms(pattern, passage.text) for passage in passages]
        self._title_terms = [_matching_terms(pattern, passage.title) for passage in passages]
        self._heading_terms = [
            _matching_terms(pattern, _note_heading(passage)) for passage in passages
        ]
        hits = (
            text | title for text, title in zip(self._text_terms, self._title_terms, strict=True)
        )
        occurs = Counter(chain.from_iterable(hits))
        self._weights = {
            term: math.log(1 + len(passages) / max(1, occurs[term]))
            for term in range(1, len(expressions) + 1)
        }
        mean = sum(len(passage.text) for passage in passages) / max(1, len(passages)) or 1.0
        self._length_factors = [0.75 + 0.25 * len(passage.text) / mean for passage in passages]
        self._covered_terms: frozenset[int] = frozenset()
        self._covered_title_terms: frozenset[int] = frozenset()

    def score(self, at: int) -> float:
        text = self._weigh(self._text_terms[at], self._covered_terms)
        title = self._weigh(self._title_terms[at], self._covered_title_terms)
        heading = self._weigh(self._heading_terms[at], self._covered_terms)
        return (text + TITLE_WEIGHT * title + HEADING_WEIGHT * heading) / self._length_factors[at]

    def mark_chosen(self, at: int) -> None:
        self._covered_terms |= self._text_terms[at] | self._title_terms[at]
        self._covered_title_terms |= self._title_terms[at]

    def covers_enough(self) -> bool:
        """Do the chosen passages speak of half of the terms, or of those that weigh most?"""
        least = MIN_TERM_COVERAGE * math.fsum(self._weights.values())
        is_half = 2 * len(self._covered_terms) >= len(self._weights)
        return is_half or self._weigh(self._covered_terms, frozenset()) >= least

    def _weigh(self, terms: frozenset[int], covered: frozenset[int]) -> float:
        shares = (REPEATED_TERM_WEIGHT if term in covered else 1 for term in terms)
        weights = map(self._weights.__getitem__, terms)
        return math.fsum(map(operator.mul, weights, shares))


def _note_heading(passage: Passage) -> str:
    """The heading of a note, if it is there; in code such a line is a remark."""
    is_one = passage.path.endswith(".md") and passage.text.startswith("# ")
    return passage.text.partition("\n")[0] if is_one else ""


def _matching_terms(pattern: re.Pattern[str], text: str) -> frozenset[int]:
    folded = unicodedata.normalize("NFC", text).casefold()
    return frozenset(found.lastindex or 0 for found in pattern.finditer(folded))
