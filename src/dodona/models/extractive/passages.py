"""Splits tool results into passages that can be quoted.

search_passages returns passages that are ranked already. Other results consist of blocks: a head
`path:first-last  title`, then indented text; of lines `path:line: text`; of JSON; or of plain text.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from textwrap import dedent
from typing import Any, Final, cast

from dodona.core.messages import ToolResult
from dodona.retrieval.question import ParsedQuestion
from dodona.retrieval.ranking import Frequencies, TextUnit, rank
from dodona.retrieval.words import terms_in

MAX_TEXT_CHARS: Final = 32_768  # of a result: tools put their best results first
MAX_WHOLE_FILE_CHARS: Final = 1_500  # of a file that the question names
MAX_BLOCKS: Final = 100
MIN_COVERAGE: Final = 0.6  # share of the question that a passage must cover
SEE_ALSO: Final = 3
MAX_USES: Final = 12
MAX_LINE_CHARS: Final = 300

_HEADING: Final = re.compile(r" {0,3}#{1,6}\s")
_USE: Final = re.compile(r"([^\s:][^:\n]{0,200}\.[A-Za-z]\w{0,7}):(\d{1,7}): ")
_PATH_KEYS: Final = ("path", "file", "url", "source")
_FRONT_MATTER: Final = re.compile(r"---\n(?:[^\n]*\n){1,100}?---\n")
_HEAD: Final = re.compile(
    r"(?:(?P<path>[^\s:][^:\n]{0,200}\.[A-Za-z]\w{0,7}):(?P<first>\d{1,7})-(?P<last>\d{1,7})"
    r"|(?P<address>thread:\d+#\d+|https?://\S+))(?:  (?P<title>[^\n]{0,400}))?"
)


@dataclass(frozen=True, slots=True)
class Passage:
    """A text to quote with its source. The lines are 0 if unknown."""

    text: str
    path: str = ""
    first: int = 0
    last: int = 0
    title: str = ""


@dataclass(frozen=True, slots=True)
class Findings:
    """The passages to quote, and others to name."""

    quotes: tuple[Passage, ...] = ()
    see_also: tuple[Passage, ...] = ()
    unknown: tuple[str, ...] = ()  # words that occur nowhere


def read_ranked(result: ToolResult) -> Findings:
    """Read the result of search_passages. Anything else is no finding."""
    try:
        document = json.loads(result.text)
    except (ValueError, RecursionError):
        return Findings()
    if not isinstance(document, Mapping):
        return Findings()
    lists = cast(Mapping[str, Any], document)
    return Findings(
        tuple(map(_read_passage, lists.get("passages", ()))),
        tuple(map(_read_passage, lists.get("see_also", ()))),
        tuple(map(str, lists.get("unknown", ()))),
    )


def _read_passage(record: Mapping[str, Any]) -> Passage:
    names = ("path", "first", "last", "title")
    return Passage(record.get("text", ""), *(record[name] for name in names))


def merge_findings(findings: Sequence[Findings]) -> Findings:
    """Return the findings of several searches; without a quotation, nothing else is shown."""
    quotes = tuple(quote for each in findings for quote in each.quotes)
    quoted = {(each.path, each.title) for each in quotes}
    others = (other for each in findings for other in each.see_also)
    return Findings(
        quotes,
        tuple(other for other in others if (other.path, other.title) not in quoted)[:SEE_ALSO],
        tuple(dict.fromkeys(word for each in findings for word in each.unknown)),
    )


def find_uses(results: Sequence[ToolResult]) -> Findings:
    """Return the uses in lists of `path:line: text`, one quotation for each list."""
    quotes: list[Passage] = []
    for result in results:
        lines = [line for line in result.text.splitlines() if _USE.match(line)]
        if lines:
            more = [f"… and {len(lines) - MAX_USES} more."] if lines[MAX_USES:] else []
            shown = [line[:MAX_LINE_CHARS] for line in lines[:MAX_USES]]
            quotes.append(Passage("\n".join([*shown, *more]), title=result.name))
    return Findings(tuple(quotes))


def rank_results(results: Sequence[ToolResult], question: ParsedQuestion) -> Findings:
    """Rank the blocks of other results. A word that they lack may still be elsewhere."""
    passages = [each for result in results for each in split_blocks(result.text)][:MAX_BLOCKS]
    documents = [TextUnit(each.title, each.path, each.text, each.path) for each in passages]
    terms = question.terms()
    counts = Counter[str]()
    for document in documents:
        counts.update(terms.keys() & {*terms_in(document.title), *terms_in(document.body)})
    frequencies = Frequencies(len(documents), counts, frozenset(terms))
    ranked = rank(terms, documents, frequencies)
    if not ranked or ranked[0].coverage < MIN_COVERAGE:
        return Findings()
    chosen = [passages[each.index] for each in ranked]
    return Findings((chosen[0],), tuple(each for each in chosen[1:] if each.path)[:SEE_ALSO])


def split_blocks(text: str) -> Iterator[Passage]:
    """Yield the blocks of a result: of text, or the records of JSON."""
    text = text[:MAX_TEXT_CHARS]
    if text.startswith(("{", "[")):
        try:
            yield from _split_json(json.loads(text))
        except (ValueError, RecursionError):
            pass  # not JSON, or cut
        else:
            return
    yield from _split_text(text)


def _split_json(value: object) -> Iterator[Passage]:
    """Yield the long texts of each record, with the path or URL of the record."""
    if isinstance(value, list):
        for each in cast(list[object], value):
            yield from _split_json(each)
    elif isinstance(value, dict):
        record = cast(dict[str, object], value)
        texts = {name: each for name, each in record.items() if isinstance(each, str)}
        path = next((texts.pop(name) for name in _PATH_KEYS if name in texts), "")
        title = texts.pop("title", "")
        if body := "\n".join(each for each in texts.values() if " " in each):
            yield Passage(body, path, title=title)
        for each in record.values():
            yield from _split_json(each)


def _split_text(text: str) -> Iterator[Passage]:
    """Yield the blocks of a text; without a head, each paragraph is one."""
    lines = text.splitlines()
    head: re.Match[str] | None = None
    block: list[str] = []
    for at, line in enumerate(lines):
        is_below = line.startswith("    ") or not line.strip()
        has_text = at + 1 < len(lines) and lines[at + 1].startswith("    ")
        match = _HEAD.fullmatch(line) if has_text and not line.startswith(" ") else None
        use = None if head and is_below else _USE.match(line)
        if match or use or (head and not is_below) or (not head and not line.strip()):
            yield from _finish_block(head, block)
            head, block = match, []
        if use:
            yield Passage(line[use.end() :], use[1], int(use[2]), int(use[2]))
        elif not match:
            block.append(line)
    yield from _finish_block(head, block)


def _finish_block(head: re.Match[str] | None, lines: Sequence[str]) -> Iterator[Passage]:
    text = dedent("\n".join(lines)).strip("\n") if head else "\n".join(lines).strip("\n")
    if not text.strip():
        return
    if head is None:
        yield Passage(text)
        return
    first, last = int(head["first"] or 0), int(head["last"] or head["first"] or 0)
    yield Passage(text, head["path"] or head["address"], first, last, head["title"] or "")


def read_file(result: ToolResult, path: str) -> Passage:
    """Return the text of a file that was read, without the head of the result and front matter."""
    head, _, text = result.text.partition("\n")
    match = _HEAD.fullmatch(head)
    if match is None or match["path"] != path:
        return Passage(result.text, path)
    first, last = int(match["first"] or 0), int(match["last"] or 0)
    if front := _FRONT_MATTER.match(text):
        first, text = first + front[0].count("\n"), text[front.end() :]
    return Passage(text, path, first, last, match["title"] or "")


def best_part(file: Passage, question: ParsedQuestion) -> Passage:
    """Return the section of a long file that the question is about; else the file."""
    names = set(terms_in(" ".join(question.paths)))
    terms = {term: value for term, value in question.terms().items() if term not in names}
    if not terms or len(file.text) <= MAX_WHOLE_FILE_CHARS:
        return file
    parts = list(_split_at_headings(file))
    units = [TextUnit("", each.text.partition("\n")[0], each.text) for each in parts]
    best = rank(terms, units, Frequencies(len(units), {}, frozenset(terms)))
    return parts[best[0].index] if best and best[0].coverage >= MIN_COVERAGE else file


def _split_at_headings(file: Passage) -> Iterator[Passage]:
    lines = file.text.split("\n")
    fences = accumulate(line.lstrip().startswith(("```", "~~~")) for line in lines)
    starts = [
        at
        for at, (line, fence) in enumerate(zip(lines, fences, strict=True))
        if at and fence % 2 == 0 and _HEADING.match(line)
    ]
    for begin, end in pairwise([0, *starts, len(lines)]):
        text = "\n".join(lines[begin:end]).rstrip()
        first = file.first + begin if file.first else 0
        last = first + text.count("\n") if first else 0
        yield replace(file, text=text, first=first, last=last)
