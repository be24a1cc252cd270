"""What tools returned, cut into passages that can be quoted, and ranked by what was asked.

A result may be JSON (records with a path and a text), lines of `path:line: text`, or plain text.
Of each, only the first `LOOK_AT` characters and `MOST_LINES` lines are read: an answer must be
instant, whatever a tool returned, and what a tool puts first is what it thinks best.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, cast

import jiter

from dodona.core.messages import ToolResult
from dodona.models.terms import patterns

LOOK_AT: Final = 32_768
MOST_LINES: Final = 2_000
MOST_PASSAGES: Final = 300
LONGEST_PASSAGE: Final = 500

_PATH_KEYS: Final = ("path", "file", "file_path", "source", "url")
_FIRST_LINE_KEYS: Final = ("line", "start_line", "line_start", "line_number")
_LAST_LINE_KEYS: Final = ("end_line", "line_end")
_TEXT_KEYS: Final = frozenset(
    {"body", "content", "excerpt", "match", "quote", "result", "snippet", "summary", "text"}
)
_GREP_LINE = re.compile(
    r"([^\s:][^:\n]{0,200}\.[A-Za-z]\w{0,5}):(\d{1,7})(?::\d{1,7})?[:\s]\s?(.*)"
)
_SENTENCE_END = re.compile(r"(?<=[.!?…。])\s+|\n")


@dataclass(frozen=True, slots=True)
class Passage:
    """Some lines of a result. `first` and `last` are line numbers, 0 when nobody says.

    An empty text stands for a record that names a path and quotes nothing of it.
    """

    text: str
    tool: str
    path: str = ""
    first: int = 0
    last: int = 0


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
    """Paragraphs of a text; lines that begin with a path and a number stand for themselves."""
    block: list[str] = []
    first = place.first
    lines = text.splitlines()[:MOST_LINES]
    for number, line in enumerate(lines, start=place.first):
        # Inside a file such a line is only text: it must not pass for a place in another file.
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


def _is_only_heading(block: Sequence[str]) -> bool:
    """A heading says what the paragraph under it is about, so they stay together."""
    return block[0].lstrip().startswith("#") and (len(block) == 1 or not block[-1].strip())


def _block(lines: Sequence[str], place: Passage) -> Iterator[Passage]:
    """A paragraph as one passage, or as several when it is long."""
    text = "\n".join(lines).rstrip()
    last = place.first + len(lines) - 1 if place.first else 0
    if place.first and place.last:
        last = min(last, max(place.first, place.last))
    for piece in _pieces(text):
        yield replace(place, text=piece, last=last)


def _pieces(text: str) -> Iterator[str]:
    """The text in order, cut behind sentences and lines, else at a space, else anywhere."""
    while len(text) > LONGEST_PASSAGE:
        ends = [found.end() for found in _SENTENCE_END.finditer(text, 0, LONGEST_PASSAGE)]
        cut = ends[-1] if ends else text.rfind(" ", 0, LONGEST_PASSAGE) + 1 or LONGEST_PASSAGE
        if piece := text[:cut].rstrip():
            yield piece
        text = text[cut:]
    if text.strip():
        yield text


def rank(found: Sequence[Passage], terms: Sequence[str]) -> list[tuple[float, Passage]]:
    """Passages with their scores, best first; equal ones stay in order.

    Each term that occurs counts once, the more the fewer passages have it; long passages need more.
    """
    expressions = list(patterns(terms))
    if not expressions or not found:
        return [(0.0, passage) for passage in found]
    pattern = re.compile("|".join(f"({expression})" for expression in expressions))
    hits = [_hits(pattern, passage) for passage in found]
    occurs = [sum(term in hit for hit in hits) for term in range(len(expressions) + 1)]
    mean = sum(len(passage.text) for passage in found) / len(found) or 1.0
    scored: list[tuple[float, Passage]] = []
    for hit, passage in zip(hits, found, strict=True):
        weight = sum(math.log(1 + len(found) / occurs[term]) for term in sorted(hit))
        scored.append((weight / (0.75 + 0.25 * len(passage.text) / mean), passage))
    return sorted(scored, key=lambda pair: -pair[0])


def _hits(pattern: re.Pattern[str], passage: Passage) -> set[int]:
    text = unicodedata.normalize("NFC", passage.text).casefold()
    return {found.lastindex or 0 for found in pattern.finditer(text)}
