"""Split tool results into passages that can be quoted, and rank them for a question.

A result may be JSON (records with a path and a text), lines of `path:line: text`, blocks below a
header of `path:first-last  title`, or plain text. Only the first `MAX_TEXT_CHARS` characters and
`MAX_LINES` lines of each are read: an answer must be instant, and tools put their best results
first.
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
MAX_CANDIDATES: Final = 100  # passages that are scored again after each selection
MAX_SELECTED: Final = 12
TITLE_WEIGHT: Final = 0.75  # of a term in the title
HEADING_WEIGHT: Final = 0.3  # of a term in the heading of a note
REPEATED_TERM_WEIGHT: Final = 0.5  # of a term that an earlier passage contains
MIN_SCORE_RATIO: Final = 0.25  # minimum score of a quote, relative to the best passage
# Share of the total term weight that the quotes must cover, unless they cover half of the terms.
MIN_TERM_COVERAGE: Final = 0.3

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
    """Some lines of a result. `first_line` and `last_line` are 0 if unknown.

    The text is empty for a record that only names a path. `title` is the title in the result,
    which is not part of the text.
    """

    text: str
    tool: str
    path: str = ""
    first_line: int = 0
    last_line: int = 0
    title: str = ""


def split_passages(result: ToolResult, path: str = "") -> list[Passage]:
    """Split a result into passages, in order; `path` is the file that the call requested."""
    text = result.text[:MAX_TEXT_CHARS]
    start = Passage("", result.name, path)
    passages = _split_text(text, start)
    if text.lstrip()[:1] in {"{", "["}:
        is_cut = len(result.text) > MAX_TEXT_CHARS
        try:
            value = jiter.from_json(
                text.encode("utf-8", "replace"),
                partial_mode="trailing-strings" if is_cut else "off",
            )
        except ValueError:
            pass  # not JSON after all
        else:
            passages = _split_json(value, start)
    return list(islice(passages, MAX_PASSAGES))


def _split_json(value: object, location: Passage) -> Iterator[Passage]:
    """Yield every text in a value, with the path and lines of the record that contains it."""
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
    has_text = False
    for key, value in record.items():
        if key in _PATH_KEYS or (isinstance(value, str) and not _is_prose(key, value)):
            continue
        for passage in _split_json(value, location):
            has_text = True
            yield passage
    if path and not has_text:
        yield location


def _line_number(record: Mapping[str, Any], keys: Sequence[str]) -> int:
    numbers = (record.get(key) for key in keys)
    return next((n for n in numbers if type(n) is int and 0 < n < 10_000_000), 0)


def _is_prose(key: str, value: str) -> bool:
    """Return whether a field is worth quoting. Ids, dates and the like are not."""
    return key in _TEXT_KEYS or (len(value) >= 16 and " " in value.strip())


def _split_text(text: str, location: Passage) -> Iterator[Passage]:
    """Yield the paragraphs of a text. A header sets the location of the lines below it."""
    lines = text.splitlines()[:MAX_LINES]
    headers = [
        index for index, line in enumerate(lines) if _is_location_header(line, index, location)
    ]
    yield from _split_paragraphs(lines[: headers[0]] if headers else lines, location)
    for start, end in pairwise([*headers, len(lines)]):
        header = _LOCATION_HEADER.fullmatch(lines[start].rstrip())
        assert header
        below = dedent("\n".join(lines[start + 1 : end])).split("\n")
        yield from _split_paragraphs(below, _location_from_header(location, header))


def _is_location_header(line: str, index: int, location: Passage) -> bool:
    """Inside a file only the first line can be one: its text must not fake another source."""
    header = _LOCATION_HEADER.fullmatch(line.rstrip())
    return header is not None and (not location.path or (index == 0 and header[1] == location.path))


def _location_from_header(location: Passage, header: re.Match[str]) -> Passage:
    return replace(
        location,
        path=header[1].strip(),
        first_line=int(header[2]),
        last_line=int(header[3]),
        title=header[4] or "",
    )


def _split_paragraphs(lines: Sequence[str], location: Passage) -> Iterator[Passage]:
    """Yield the paragraphs. A line that starts with a path and a number is one passage."""
    block: list[str] = []
    first = location.first_line
    skipped = _front_matter_lines(lines, location)
    for number, line in enumerate(lines[skipped:], start=location.first_line + skipped):
        # Inside a file such a line is plain text, like a location header.
        match = None if location.path else _GREP_LINE.match(line)
        is_blank = not line.strip()
        if block and (match or (is_blank and not _is_only_heading(block))):
            yield from _split_block(block, replace(location, first_line=first))
            block = []
        if match:
            at = int(match[2])
            yield Passage(match[3][:MAX_PASSAGE_CHARS], location.tool, match[1].strip(), at, at)
        elif block:
            block.append(line)
        elif not is_blank:
            block, first = [line], number if location.first_line else 0
    if block:
        yield from _split_block(block, replace(location, first_line=first))


def _front_matter_lines(lines: Sequence[str], location: Passage) -> int:
    """Return the number of lines of front matter at the start of a file."""
    if location.first_line != 1 or not lines or lines[0].rstrip() != "---":
        return 0
    ends = (number for number, line in enumerate(lines[1:100], start=2) if line.rstrip() == "---")
    return next(ends, 0)


def _is_only_heading(block: Sequence[str]) -> bool:
    """Return whether the block is only a heading; it stays with the paragraph below it."""
    return block[0].lstrip().startswith("#") and (len(block) == 1 or not block[-1].strip())


def _split_block(lines: Sequence[str], location: Passage) -> Iterator[Passage]:
    """Yield a paragraph as one passage, or as several if it is long."""
    text = "\n".join(lines).rstrip()
    end = location.last_line or location.first_line + len(lines)
    for start, piece in _split_long_text(text):
        if not location.first_line:
            yield replace(location, text=piece, last_line=0)
            continue
        first = min(location.first_line + text.count("\n", 0, start), end)
        last = min(first + piece.count("\n"), end)
        yield replace(location, text=piece, first_line=first, last_line=last)


def _split_long_text(text: str) -> Iterator[tuple[int, str]]:
    """Split a text after sentences and lines, else at a space, else anywhere.

    Yields each piece with its offset in the text.
    """
    start = 0
    while len(text) - start > MAX_PASSAGE_CHARS:
        end = start + MAX_PASSAGE_CHARS
        ends = [match.end() for match in _SENTENCE_END.finditer(text, start, end)]
        cut = ends[-1] if ends else text.rfind(" ", start, end) + 1 or end
        if piece := text[start:cut].rstrip():
            yield start, piece
        start = cut
    if text[start:].strip():
        yield start, text[start:]


def rank_passages(passages: Sequence[Passage], terms: Sequence[str]) -> list[tuple[float, Passage]]:
    """Return the passages with their scores, best first. Ties keep their order."""
    ranker = _PassageRanker(passages, terms)
    scores = [ranker.score(index) for index in range(len(passages))]
    return sorted(zip(scores, passages, strict=True), key=lambda pair: -pair[0])


def select_passages(
    passages: Sequence[Passage], terms: Sequence[str], *, identifiers: Sequence[str] = ()
) -> list[tuple[float, Passage]]:
    """Select the passages to quote: the best one, then those that add to it.

    Terms that earlier passages contain count less, so a question about two topics is answered
    from sources on both. Returns nothing if the passages cover too few of the terms, unless one
    contains one of the `identifiers`.
    """
    ranker = _PassageRanker(passages, terms)
    candidates = sorted(range(len(passages)), key=ranker.score, reverse=True)[:MAX_CANDIDATES]
    selected: list[tuple[float, Passage]] = []
    while candidates and len(selected) < MAX_SELECTED:
        score, best = max(
            ((ranker.score(index), index) for index in candidates), key=lambda pair: pair[0]
        )
        if score <= 0 or (selected and score < MIN_SCORE_RATIO * selected[0][0]):
            break
        candidates.remove(best)
        ranker.mark_chosen(best)
        selected.append((score, passages[best]))
    has_identifier = any(name in passage.text for name in identifiers for _, passage in selected)
    return selected if has_identifier or ranker.covers_enough() else []


class _PassageRanker:
    """Scores passages by the terms they contain.

    Each term counts once, and more if fewer passages contain it. Terms in the title or in the
    heading of a note add to the score. Long passages are scored lower.
    """

    def __init__(self, passages: Sequence[Passage], terms: Sequence[str]) -> None:
        expressions = list(term_patterns(terms))
        pattern = re.compile("|".join(f"({expression})" for expression in expressions) or r"(?!)")
        self._text_terms = [_matching_terms(pattern, passage.text) for passage in passages]
        self._title_terms = [_matching_terms(pattern, passage.title) for passage in passages]
        self._heading_terms = [
            _matching_terms(pattern, _note_heading(passage)) for passage in passages
        ]
        matches = (
            text | title for text, title in zip(self._text_terms, self._title_terms, strict=True)
        )
        frequencies = Counter(chain.from_iterable(matches))
        self._weights = {
            term: math.log(1 + len(passages) / max(1, frequencies[term]))
            for term in range(1, len(expressions) + 1)
        }
        mean = sum(len(passage.text) for passage in passages) / max(1, len(passages)) or 1.0
        self._length_factors = [0.75 + 0.25 * len(passage.text) / mean for passage in passages]
        self._covered_terms: frozenset[int] = frozenset()
        self._covered_title_terms: frozenset[int] = frozenset()

    def score(self, index: int) -> float:
        """Return the score of a passage, given the passages chosen so far."""
        text = self._weigh(self._text_terms[index], self._covered_terms)
        title = self._weigh(self._title_terms[index], self._covered_title_terms)
        heading = self._weigh(self._heading_terms[index], self._covered_terms)
        total = text + TITLE_WEIGHT * title + HEADING_WEIGHT * heading
        return total / self._length_factors[index]

    def mark_chosen(self, index: int) -> None:
        """Mark the terms of a passage as covered."""
        self._covered_terms |= self._text_terms[index] | self._title_terms[index]
        self._covered_title_terms |= self._title_terms[index]

    def covers_enough(self) -> bool:
        """Return whether the chosen passages cover half of the terms, or enough weight."""
        min_weight = MIN_TERM_COVERAGE * math.fsum(self._weights.values())
        covers_half = 2 * len(self._covered_terms) >= len(self._weights)
        return covers_half or self._weigh(self._covered_terms, frozenset()) >= min_weight

    def _weigh(self, terms: frozenset[int], covered: frozenset[int]) -> float:
        factors = (REPEATED_TERM_WEIGHT if term in covered else 1 for term in terms)
        weights = map(self._weights.__getitem__, terms)
        return math.fsum(map(operator.mul, weights, factors))


def _note_heading(passage: Passage) -> str:
    """Return the heading at the start of a note, if any; in code such a line is a comment."""
    has_heading = passage.path.endswith(".md") and passage.text.startswith("# ")
    return passage.text.partition("\n")[0] if has_heading else ""


def _matching_terms(pattern: re.Pattern[str], text: str) -> frozenset[int]:
    folded = unicodedata.normalize("NFC", text).casefold()
    return frozenset(match.lastindex or 0 for match in pattern.finditer(folded))
