"""What tools returned, cut into passages that can be quoted, and ranked by what was asked.

A result may be JSON (records with a path and a text), lines of `path:line: text`, blocks below a
head of `path:first-last  title`, or plain text. Of each, only the first `LOOK_AT` characters and
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
from dodona.models.extractive.terms import patterns

LOOK_AT: Final = 32_768
MOST_LINES: Final = 2_000
MOST_PASSAGES: Final = 300
LONGEST_PASSAGE: Final = 500
MOST_COMPARED: Final = 100  # passages that are looked at again for each that is chosen
MOST_TELLING: Final = 12
IN_TITLE: Final = 0.75  # what a term in the title adds
IN_HEADING: Final = 0.3  # … and one in the heading that begins a note
SAID_BEFORE: Final = 0.5  # what a term is worth that an earlier passage has
LEAST_SHARE: Final = 0.25  # of the best passage's score that another needs to be quoted
LEAST_COVERED: Final = 0.3  # of the weight of all terms that they must have, if not half of them

_PATH_KEYS: Final = ("path", "file", "file_path", "source", "url")
_FIRST_LINE_KEYS: Final = ("line", "start_line", "line_start", "line_number")
_LAST_LINE_KEYS: Final = ("end_line", "line_end")
_TEXT_KEYS: Final = frozenset(
    {"body", "content", "excerpt", "match", "quote", "result", "snippet", "summary", "text"}
)
_GREP_LINE = re.compile(
    r"([^\s:][^:\n]{0,200}\.[A-Za-z]\w{0,5}):(\d{1,7})(?::\d{1,7})?[:\s]\s?(.*)"
)
_HEAD_LINE = re.compile(
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
    first: int = 0
    last: int = 0
    about: str = ""


def passages(result: ToolResult, path: str = "") -> list[Passage]:
    """The passages of a result, in its order; `path` is the file that the call asked for."""
    text = result.text[:LOOK_AT]
    start = Passage("", result.name, path)
    found = _in_text(text, start)
    if text.lstrip()[:1] in {"{", "["}:
        is_cut = len(result.text) > LOOK_AT
        try:
            value = jiter.from_json(
                text.encode("utf-8", "replace"),
                partial_mode="trailing-strings" if is_cut else "off",
            )
        except ValueError:
            pass  # it only looked like JSON
        else:
            found = _in_json(value, start)
    return list(islice(found, MOST_PASSAGES))


def _in_json(value: object, place: Passage) -> Iterator[Passage]:
    """Every text in a value, placed by the path and lines of the nearest record around it."""
    if isinstance(value, str):
        yield from _in_text(value, place)
    elif isinstance(value, list):
        for item in cast(list[object], value):
            yield from _in_json(item, place)
    elif isinstance(value, Mapping):
        yield from _in_record(cast(Mapping[str, Any], value), place)


def _in_record(record: Mapping[str, Any], place: Passage) -> Iterator[Passage]:
    path = next((record[key] for key in _PATH_KEYS if isinstance(record.get(key), str)), "")
    first = _number(record, _FIRST_LINE_KEYS)
    if path:
        place = replace(place, path=path, first=first, last=_number(record, _LAST_LINE_KEYS))
    elif first:
        place = replace(place, first=first, last=_number(record, _LAST_LINE_KEYS))
    is_bare = True
    for key, value in record.items():
        if key in _PATH_KEYS or (isinstance(value, str) and not _is_prose(key, value)):
            continue
        for passage in _in_json(value, place):
            is_bare = False
            yield passage
    if path and is_bare:
        yield place


def _number(record: Mapping[str, Any], keys: Sequence[str]) -> int:
    numbers = (record.get(key) for key in keys)
    return next((n for n in numbers if type(n) is int and 0 < n < 10_000_000), 0)


def _is_prose(key: str, value: str) -> bool:
    """Is a field worth quoting? Ids, dates and the like are not."""
    return key in _TEXT_KEYS or (len(value) >= 16 and " " in value.strip())


def _in_text(text: str, place: Passage) -> Iterator[Passage]:
    """Paragraphs of a text; what stands below a head is placed by it."""
    lines = text.splitlines()[:MOST_LINES]
    heads = [at for at, line in enumerate(lines) if _is_head(line, at, place)]
    yield from _paragraphs(lines[: heads[0]] if heads else lines, place)
    for at, end in pairwise([*heads, len(lines)]):
        head = _HEAD_LINE.fullmatch(lines[at].rstrip())
        assert head
        below = dedent("\n".join(lines[at + 1 : end])).split("\n")
        yield from _paragraphs(below, _headed(place, head))


def _is_head(line: str, at: int, place: Passage) -> bool:
    """Inside a file only the first line can be one: it must not pass for a place in another."""
    head = _HEAD_LINE.fullmatch(line.rstrip())
    return head is not None and (not place.path or (at == 0 and head[1] == place.path))


def _headed(place: Passage, head: re.Match[str]) -> Passage:
    return replace(
        place, path=head[1].strip(), first=int(head[2]), last=int(head[3]), about=head[4] or ""
    )


def _paragraphs(lines: Sequence[str], place: Passage) -> Iterator[Passage]:
    """Paragraphs; lines that begin with a path and a number stand for themselves."""
    block: list[str] = []
    first = place.first
    skipped = _front_matter(lines, place)
    for number, line in enumerate(lines[skipped:], start=place.first + skipped):
        # Inside a file such a line is only text, as a head is.
        hit = None if place.path else _GREP_LINE.match(line)
        is_blank = not line.strip()
        if block and (hit or (is_blank and not _is_only_heading(block))):
            yield from _block(block, replace(place, first=first))
            block = []
        if hit:
            at = int(hit[2])
            yield Passage(hit[3][:LONGEST_PASSAGE], place.tool, hit[1].strip(), at, at)
        elif block:
            block.append(line)
        elif not is_blank:
            block, first = [line], number if place.first else 0
    if block:
        yield from _block(block, replace(place, first=first))


def _front_matter(lines: Sequence[str], place: Passage) -> int:
    """How many lines at the beginning of a file say something about it and nothing of it."""
    if place.first != 1 or not lines or lines[0].rstrip() != "---":
        return 0
    ends = (at for at, line in enumerate(lines[1:100], start=2) if line.rstrip() == "---")
    return next(ends, 0)


def _is_only_heading(block: Sequence[str]) -> bool:
    """A heading says what the paragraph under it is about, so they stay together."""
    return block[0].lstrip().startswith("#") and (len(block) == 1 or not block[-1].strip())


def _block(lines: Sequence[str], place: Passage) -> Iterator[Passage]:
    """A paragraph as one passage, or as several when it is long."""
    text = "\n".join(lines).rstrip()
    end = place.last or place.first + len(lines)
    for at, piece in _pieces(text):
        if not place.first:
            yield replace(place, text=piece, last=0)
            continue
        first = min(place.first + text.count("\n", 0, at), end)
        last = min(first + piece.count("\n"), end)
        yield replace(place, text=piece, first=first, last=last)


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """The text in order, cut behind sentences and lines, else at a space, else anywhere.

    Each with its place in the text.
    """
    at = 0
    while len(text) - at > LONGEST_PASSAGE:
        end = at + LONGEST_PASSAGE
        ends = [found.end() for found in _SENTENCE_END.finditer(text, at, end)]
        cut = ends[-1] if ends else text.rfind(" ", at, end) + 1 or end
        if piece := text[at:cut].rstrip():
            yield at, piece
        at = cut
    if text[at:].strip():
        yield at, text[at:]


def rank(found: Sequence[Passage], terms: Sequence[str]) -> list[tuple[float, Passage]]:
    """Passages with their scores, best first; equal ones stay in order."""
    ranking = _Ranking(found, terms)
    scores = [ranking.score(at) for at in range(len(found))]
    return sorted(zip(scores, found, strict=True), key=lambda pair: -pair[0])


def telling(
    found: Sequence[Passage], terms: Sequence[str], *, identifiers: Sequence[str] = ()
) -> list[tuple[float, Passage]]:
    """The passages to quote: the best, then what adds to it; none if they miss what was asked.

    What others before it have counts for less in a passage, so a question about two things is
    answered from the sources of both. Who asks for one of the `identifiers` is answered by it.
    """
    ranking = _Ranking(found, terms)
    left = sorted(range(len(found)), key=ranking.score, reverse=True)[:MOST_COMPARED]
    chosen: list[tuple[float, Passage]] = []
    while left and len(chosen) < MOST_TELLING:
        score, at = max(((ranking.score(at), at) for at in left), key=lambda pair: pair[0])
        if score <= 0 or (chosen and score < LEAST_SHARE * chosen[0][0]):
            break
        left.remove(at)
        ranking.choose(at)
        chosen.append((score, found[at]))
    is_named = any(name in passage.text for name in identifiers for _, passage in chosen)
    return chosen if is_named or ranking.covers_enough() else []


class _Ranking:
    """What the terms weigh, which passages have them, and which terms were chosen already.

    Each term that occurs counts once, the more the fewer passages have it; one that the title or
    a note's heading has counts more. Long passages need more.
    """

    def __init__(self, found: Sequence[Passage], terms: Sequence[str]) -> None:
        expressions = list(patterns(terms))
        pattern = re.compile("|".join(f"({expression})" for expression in expressions) or r"(?!)")
        self._texts = [_hits(pattern, passage.text) for passage in found]
        self._titles = [_hits(pattern, passage.about) for passage in found]
        self._headings = [_hits(pattern, _heading(passage)) for passage in found]
        hits = (text | title for text, title in zip(self._texts, self._titles, strict=True))
        occurs = Counter(chain.from_iterable(hits))
        self._weights = {
            term: math.log(1 + len(found) / max(1, occurs[term]))
            for term in range(1, len(expressions) + 1)
        }
        mean = sum(len(passage.text) for passage in found) / max(1, len(found)) or 1.0
        self._lengths = [0.75 + 0.25 * len(passage.text) / mean for passage in found]
        self._said: frozenset[int] = frozenset()
        self._titled: frozenset[int] = frozenset()

    def score(self, at: int) -> float:
        text = self._worth(self._texts[at], self._said)
        title = self._worth(self._titles[at], self._titled)
        heading = self._worth(self._headings[at], self._said)
        return (text + IN_TITLE * title + IN_HEADING * heading) / self._lengths[at]

    def choose(self, at: int) -> None:
        self._said |= self._texts[at] | self._titles[at]
        self._titled |= self._titles[at]

    def covers_enough(self) -> bool:
        """Do the chosen passages speak of half of the terms, or of those that weigh most?"""
        least = LEAST_COVERED * math.fsum(self._weights.values())
        is_half = 2 * len(self._said) >= len(self._weights)
        return is_half or self._worth(self._said, frozenset()) >= least

    def _worth(self, terms: frozenset[int], before: frozenset[int]) -> float:
        shares = (SAID_BEFORE if term in before else 1 for term in terms)
        weights = map(self._weights.__getitem__, terms)
        return math.fsum(map(operator.mul, weights, shares))


def _heading(passage: Passage) -> str:
    """The heading of a note, if it is there; in code such a line is a remark."""
    is_one = passage.path.endswith(".md") and passage.text.startswith("# ")
    return passage.text.partition("\n")[0] if is_one else ""


def _hits(pattern: re.Pattern[str], text: str) -> frozenset[int]:
    folded = unicodedata.normalize("NFC", text).casefold()
    return frozenset(found.lastindex or 0 for found in pattern.finditer(folded))
