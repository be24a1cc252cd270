"""Citations of an answer, checked against the sources that tools returned.

A citation is: the target of a Markdown link or wikilink to a note, file, thread entry or page; a
code span that names a returned source, or lines of a file; a bare URL, unless it comes from the
user or from a tool result. `path:12`, `path#L12` and `path, lines 3–9` name lines. Code blocks
contain no citations, nor do quotations of tool results: their links belong to the quoted source.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final
from urllib.parse import unquote

import msgspec

from dodona.core.ports.tools import SourceKind, SourceReference

MAX_CITATIONS: Final = 50

_FENCE = re.compile(r"^ {0,3}(```+|~~~+)[^\n]*\n.*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)", re.M | re.S)
_LINK = re.compile(r"(?<!!)\[[^\[\]\n]{0,300}\]\(\s*<?([^)\s>]{1,2000})>?(?:\s+\"[^\"\n]*\")?\s*\)")
_WIKILINK = re.compile(r"(?<!!)\[\[([^\[\]\n|#^]{1,300})(?:[|#^][^\[\]\n]{0,300})?\]\]")
_CODE_SPAN = re.compile(r"`([^`\n]{1,300})`(?:, lines? (\d+)(?:[–-](\d+))?)?")
_LINE_RANGE = re.compile(r"(?:#L?|:)(\d{1,7})(?:[-–]L?(\d{1,7}))?(?::\d+)?$")
_BLOCKQUOTE = re.compile(r"^ {0,3}>[ \t]?(.*)$", re.M)
_FILE_EXTENSION = re.compile(r"\.[A-Za-z0-9]{1,8}$")
# A file path that may have line numbers; `example.org:80` is a server.
_FILE_PATH = re.compile(
    r"[\w.@+-]*/[\w./@+-]*\.[A-Za-z]\w{0,7}"
    r"|[\w-][\w.-]*\.(?:md|py|[jt]sx?|go|rs|java|cc?|cpp|hh?|hpp|rb|cs|php|sh|lisp|toml|ya?ml|json)"
)
_SPAN_WITH_LINES = re.compile(r"`[^`\n]{1,300}[:#]L?\d[^`\n]{0,40}`|`, lines? \d")
_BARE_URL = re.compile(
    r"https?://[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,63}(?![\w.-])[^\s<>\"'`|\[\](){}]*"
)
_TRAILING_PUNCTUATION: Final = ".,;:!?*_"  # not part of a URL at its end


class Citation(msgspec.Struct, frozen=True):
    """`target` is as written in the answer; `found` states whether a tool returned it."""

    target: str
    found: bool


@dataclass(frozen=True, slots=True)
class _Reference:
    target: str
    path: str
    first_line: int = 0
    last_line: int = 0
    by_name: bool = False  # a wikilink: no folders, no extension


def find_citations(
    answer: str,
    sources: Sequence[SourceReference],
    earlier_results: Iterable[str],
    results: Sequence[str] = (),
    *,
    user_texts: Sequence[str] = (),
) -> list[Citation]:
    """Find the citations of an answer, without duplicates.

    `results` are the tool results of this run, which the answer may quote; `earlier_results` are
    those of earlier runs; `user_texts` are the messages of the user.
    """
    returned = _ReturnedSources(sources, earlier_results)
    text = _FENCE.sub("\n", answer)
    text = _BLOCKQUOTE.sub(lambda quote: "" if _occurs_in(quote[1], results) else quote[0], text)
    citations: dict[str, Citation] = {}
    seen_texts = (*results, *returned.earlier_results, *user_texts)
    for reference in (
        *_find_links(text),
        *_find_code_spans(text, returned, seen_texts),
        *_find_bare_urls(text, returned, seen_texts),
    ):
        target = reference.target
        if target not in citations and len(citations) < MAX_CITATIONS:
            citations[target] = Citation(target, returned.contains(reference))
    return list(citations.values())


def may_contain_citation(answer: str) -> bool:
    """Whether an answer may contain a citation. A fast check without false negatives."""
    signs = ("](", "[[", "://")
    return any(sign in answer for sign in signs) or _SPAN_WITH_LINES.search(answer) is not None


def _occurs_in(line: str, results: Iterable[str]) -> bool:
    return any(line.strip() in result for result in results)


def _find_links(text: str) -> Iterator[_Reference]:
    plain = _CODE_SPAN.sub(" ", text)
    for link in _LINK.finditer(plain):
        reference = _parse_link_target(link[1])
        if reference is not None:
            yield reference
    for link in _WIKILINK.finditer(plain):
        name = link[1].strip()
        yield _Reference(f"[[{name}]]", name, by_name=True)


def _parse_link_target(target: str) -> _Reference | None:
    """The reference of a link; None for anchors and other kinds of URLs, which are no sources."""
    if target.startswith(("http://", "https://")):
        return _Reference(target, target.partition("#")[0])
    if target.startswith("thread:"):
        return _Reference(target, target)
    path, first, last = _split_line_range(unquote(target))
    path = path.partition("#")[0].removeprefix("./")
    if ":" in path or not _FILE_EXTENSION.search(path):
        return None
    return _Reference(target, path, first, last)


def _find_code_spans(
    text: str, returned: _ReturnedSources, seen_texts: Sequence[str]
) -> Iterator[_Reference]:
    for span in _CODE_SPAN.finditer(text):
        path, first, last = _split_line_range(span[1])
        if span[2]:
            first, last = int(span[2]), int(span[3] or span[2])
        is_invented = first and _FILE_PATH.fullmatch(path) and not _occurs_in(span[1], seen_texts)
        if returned.has_path(path) or is_invented:
            yield _Reference(span[0].replace("`", ""), path, first, last)


def _find_bare_urls(
    text: str, returned: _ReturnedSources, seen_texts: Sequence[str]
) -> Iterator[_Reference]:
    """Bare URLs in the text. A URL that was mentioned but not fetched is not a citation."""
    plain = _LINK.sub(" ", _CODE_SPAN.sub(" ", text))
    for match in islice(_BARE_URL.finditer(plain), MAX_CITATIONS):
        target = match[0].rstrip(_TRAILING_PUNCTUATION)
        path = target.partition("#")[0]
        if returned.has_path(path) or not _occurs_in(path, seen_texts):
            yield _Reference(target, path)


def _split_line_range(target: str) -> tuple[str, int, int]:
    """Split a target into path, first and last line; the lines are 0 if it names none."""
    match = _LINE_RANGE.search(target)
    if match is None or target.startswith("thread:"):
        return target, 0, 0
    first = int(match[1])
    return target[: match.start()], first, int(match[2] or first)


class _ReturnedSources:
    """The sources that tools returned."""

    def __init__(self, sources: Sequence[SourceReference], earlier_results: Iterable[str]) -> None:
        self._lines: dict[str, list[tuple[int, int]]] = {}
        for source in sources:
            path = source.path.partition("#")[0] if source.kind is SourceKind.WEB else source.path
            self._lines.setdefault(path, []).append(_parse_lines(source.lines))
        self.earlier_results = list(earlier_results)

    def has_path(self, path: str) -> bool:
        return path in self._lines

    def contains(self, reference: _Reference) -> bool:
        if reference.by_name:
            return any(
                _matches_name(path, reference.path) for path in self._lines
            ) or self._is_in_earlier_results(reference)
        ranges = self._lines.get(reference.path) or self._lines.get(reference.path.rstrip("/"))
        if ranges is None:
            entries = f"{reference.path}#"  # reading one entry allows citing the whole thread
            is_thread = reference.path.startswith("thread:")
            is_read = is_thread and any(path.startswith(entries) for path in self._lines)
            return is_read or self._is_in_earlier_results(reference)
        if not reference.first_line:
            return True
        return any(
            first <= reference.last_line and reference.first_line <= last for first, last in ranges
        )

    def _is_in_earlier_results(self, reference: _Reference) -> bool:
        """Whether an earlier tool result mentions the path; its sources are not available here."""
        return any(reference.path in text for text in self.earlier_results)


def _parse_lines(lines: str) -> tuple[int, int]:
    """Parse `3–9` into numbers; a source without lines covers the whole file."""
    numbers = [int(number) for number in re.findall(r"\d+", lines)]
    if not numbers:
        return 0, 10**9
    return numbers[0], numbers[-1]


def _matches_name(path: str, name: str) -> bool:
    full, short = (each.casefold().removesuffix(".md") for each in (path, name))
    return full == short or full.endswith(f"/{short}")
