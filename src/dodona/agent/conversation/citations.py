"""Citations: what an answer says that it is from, checked against what tools have returned.

A citation is the target of a Markdown link or a wikilink that names a note, a file, an entry of a
thread or a page; a code span that names something a tool returned, or lines of a file; and the bare
address of a page, unless it is the user's own or only repeats what a tool returned. `path:12`,
`path#L12` and `path, lines 3–9` name lines. Text in code blocks cites nothing, nor does a
quotation: the links in what a tool returned are its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final
from urllib.parse import unquote

from dodona.core.ports.tools import SourceKind, SourceReference

MAX_CITATIONS: Final = 50

_FENCE = re.compile(r"^ {0,3}(```+|~~~+)[^\n]*\n.*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)", re.M | re.S)
_LINK = re.compile(r"(?<!!)\[[^\[\]\n]{0,300}\]\(\s*<?([^)\s>]{1,2000})>?(?:\s+\"[^\"\n]*\")?\s*\)")
_WIKILINK = re.compile(r"(?<!!)\[\[([^\[\]\n|#^]{1,300})(?:[|#^][^\[\]\n]{0,300})?\]\]")
_CODE_SPAN = re.compile(r"`([^`\n]{1,300})`(?:, lines? (\d+)(?:[–-](\d+))?)?")
_LINE_RANGE = re.compile(r"(?:#L?|:)(\d{1,7})(?:[-–]L?(\d{1,7}))?(?::\d+)?$")
_BLOCKQUOTE = re.compile(r"^ {0,3}>[ \t]?(.*)$", re.M)
_FILE_EXTENSION = re.compile(r"\.[A-Za-z0-9]{1,8}$")
# A file, when somebody names lines of it; `example.org:80` is a server.
_FILE_PATH = re.compile(
    r"[\w.@+-]*/[\w./@+-]*\.[A-Za-z]\w{0,7}"
    r"|[\w-][\w.-]*\.(?:md|py|[jt]sx?|go|rs|java|cc?|cpp|hh?|hpp|rb|cs|php|sh|lisp|toml|ya?ml|json)"
)
_SPAN_WITH_LINES = re.compile(r"`[^`\n]{1,300}[:#]L?\d[^`\n]{0,40}`|`, lines? \d")
_BARE_URL = re.compile(
    r"https?://[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,63}(?![\w.-])[^\s<>\"'`|\[\](){}]*"
)
_TRAILING_PUNCTUATION: Final = ".,;:!?*_"  # what follows an address, and is no part of it


@dataclass(frozen=True, slots=True)
class Citation:
    """`target` as the answer has it; `found` when a tool has returned it."""

    target: str
    found: bool

    def as_json(self) -> dict[str, Any]:
        return {"target": self.target, "found": self.found}


@dataclass(frozen=True, slots=True)
class _Reference:
    target: str
    path: str
    first_line: int = 0
    last_line: int = 0
    by_name: bool = False  # as wikilinks do, without folders and the ending


def find_citations(
    answer: str,
    sources: Sequence[SourceReference],
    earlier_results: Iterable[str],
    results: Sequence[str] = (),
    *,
    user_texts: Sequence[str] = (),
) -> list[Citation]:
    """The citations of an answer, each once.

    `results` are what tools returned for it, and may be quoted; `earlier_results` are earlier ones;
    `asked` is what the user said.
    """
    known = _ReturnedSources(sources, earlier_results)
    text = _FENCE.sub("\n", answer)
    text = _BLOCKQUOTE.sub(lambda quote: "" if _occurs_in(quote[1], results) else quote[0], text)
    found: dict[str, Citation] = {}
    heard = (*results, *known.earlier_results, *user_texts)
    for cited in (
        *_find_links(text),
        *_find_code_spans(text, known, heard),
        *_find_bare_urls(text, known, heard),
    ):
        if cited.target not in found and len(found) < MAX_CITATIONS:
            found[cited.target] = Citation(cited.target, known.contains(cited))
    return list(found.values())


def may_contain_citation(answer: str) -> bool:
    """Can there be a citation in it? A quick look."""
    signs = ("](", "[[", "://")
    return any(sign in answer for sign in signs) or _SPAN_WITH_LINES.search(answer) is not None


def _occurs_in(line: str, results: Iterable[str]) -> bool:
    return any(line.strip() in result for result in results)


def _find_links(text: str) -> Iterator[_Reference]:
    plain = _CODE_SPAN.sub(" ", text)
    for link in _LINK.finditer(plain):
        cited = _parse_link_target(link[1])
        if cited is not None:
            yield cited
    for link in _WIKILINK.finditer(plain):
        name = link[1].strip()
        yield _Reference(f"[[{name}]]", name, by_name=True)


def _parse_link_target(target: str) -> _Reference | None:
    """What a link names, if that is a source; anchors and addresses of other kinds are not."""
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
        is_made_up = first and _FILE_PATH.fullmatch(path) and not _occurs_in(span[1], seen_texts)
        if returned.has_path(path) or is_made_up:
            yield _Reference(span[0].replace("`", ""), path, first, last)


def _find_bare_urls(
    text: str, returned: _ReturnedSources, seen_texts: Sequence[str]
) -> Iterator[_Reference]:
    """Addresses that stand by themselves. One that was heard of, but not read, is no source."""
    plain = _LINK.sub(" ", _CODE_SPAN.sub(" ", text))
    for found in islice(_BARE_URL.finditer(plain), MAX_CITATIONS):
        target = found[0].rstrip(_TRAILING_PUNCTUATION)
        path = target.partition("#")[0]
        if returned.has_path(path) or not _occurs_in(path, seen_texts):
            yield _Reference(target, path)


def _split_line_range(target: str) -> tuple[str, int, int]:
    """A path, and the lines that it names; 0 for none."""
    place = _LINE_RANGE.search(target)
    if place is None or target.startswith("thread:"):
        return target, 0, 0
    first = int(place[1])
    return target[: place.start()], first, int(place[2] or first)


class _ReturnedSources:
    """What tools have returned."""

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
            entries = f"{reference.path}#"  # of a thread: whoever has read some may cite it
            is_thread = reference.path.startswith("thread:")
            is_read = is_thread and any(path.startswith(entries) for path in self._lines)
            return is_read or self._is_in_earlier_results(reference)
        if not reference.first_line:
            return True
        return any(
            first <= reference.last_line and reference.first_line <= last for first, last in ranges
        )

    def _is_in_earlier_results(self, reference: _Reference) -> bool:
        """In an earlier exchange, whose sources are not at hand: was the name in a result?"""
        return any(reference.path in text for text in self.earlier_results)


def _parse_lines(lines: str) -> tuple[int, int]:
    """`3–9` as numbers; a source without lines is all of it."""
    found = [int(number) for number in re.findall(r"\d+", lines)]
    if not found:
        return 0, 10**9
    return found[0], found[-1]


def _matches_name(path: str, name: str) -> bool:
    known, wanted = (each.casefold().removesuffix(".md") for each in (path, name))
    return known == wanted or known.endswith(f"/{wanted}")
