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

from dodona.core.ports.tools import Source, SourceKind

MOST: Final = 50

_FENCE = re.compile(r"^ {0,3}(```+|~~~+)[^\n]*\n.*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)", re.M | re.S)
_LINK = re.compile(r"(?<!!)\[[^\[\]\n]{0,300}\]\(\s*<?([^)\s>]{1,2000})>?(?:\s+\"[^\"\n]*\")?\s*\)")
_WIKILINK = re.compile(r"(?<!!)\[\[([^\[\]\n|#^]{1,300})(?:[|#^][^\[\]\n]{0,300})?\]\]")
_SPAN = re.compile(r"`([^`\n]{1,300})`(?:, lines? (\d+)(?:[–-](\d+))?)?")
_PLACE = re.compile(r"(?:#L?|:)(\d{1,7})(?:[-–]L?(\d{1,7}))?(?::\d+)?$")
_QUOTED = re.compile(r"^ {0,3}>[ \t]?(.*)$", re.M)
_NAMES_FILE = re.compile(r"\.[A-Za-z0-9]{1,8}$")
# A file, when somebody names lines of it; `example.org:80` is a server.
_LINED_FILE = re.compile(
    r"[\w.@+-]*/[\w./@+-]*\.[A-Za-z]\w{0,7}"
    r"|[\w-][\w.-]*\.(?:md|py|[jt]sx?|go|rs|java|cc?|cpp|hh?|hpp|rb|cs|php|sh|lisp|toml|ya?ml|json)"
)
_LINED_SPAN = re.compile(r"`[^`\n]{1,300}[:#]L?\d[^`\n]{0,40}`|`, lines? \d")
_BARE = re.compile(r"https?://[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,63}(?![\w.-])[^\s<>\"'`|\[\](){}]*")
_AFTER: Final = ".,;:!?*_"  # what follows an address, and is no part of it


@dataclass(frozen=True, slots=True)
class Citation:
    """`target` as the answer has it; `found` when a tool has returned it."""

    target: str
    found: bool

    def as_json(self) -> dict[str, Any]:
        return {"target": self.target, "found": self.found}


@dataclass(frozen=True, slots=True)
class _Cited:
    target: str
    path: str
    first: int = 0
    last: int = 0
    by_name: bool = False  # as wikilinks do, without folders and the ending


def check(
    answer: str,
    sources: Sequence[Source],
    said_before: Iterable[str],
    results: Sequence[str] = (),
    *,
    asked: Sequence[str] = (),
) -> list[Citation]:
    """The citations of an answer, each once.

    `results` are what tools returned for it, and may be quoted; `said_before` are earlier ones;
    `asked` is what the user said.
    """
    known = _Known(sources, said_before)
    text = _FENCE.sub("\n", answer)
    text = _QUOTED.sub(lambda quote: "" if _is_in(quote[1], results) else quote[0], text)
    found: dict[str, Citation] = {}
    heard = (*results, *known.before, *asked)
    for cited in (*_linked(text), *_named(text, known, heard), *_bare(text, known, heard)):
        if cited.target not in found and len(found) < MOST:
            found[cited.target] = Citation(cited.target, known.has(cited))
    return list(found.values())


def may_cite(answer: str) -> bool:
    """Can there be a citation in it? A quick look."""
    signs = ("](", "[[", "://")
    return any(sign in answer for sign in signs) or _LINED_SPAN.search(answer) is not None


def _is_in(line: str, results: Iterable[str]) -> bool:
    return any(line.strip() in result for result in results)


def _linked(text: str) -> Iterator[_Cited]:
    plain = _SPAN.sub(" ", text)
    for link in _LINK.finditer(plain):
        cited = _cited(link[1])
        if cited is not None:
            yield cited
    for link in _WIKILINK.finditer(plain):
        name = link[1].strip()
        yield _Cited(f"[[{name}]]", name, by_name=True)


def _cited(target: str) -> _Cited | None:
    """What a link names, if that is a source; anchors and addresses of other kinds are not."""
    if target.startswith(("http://", "https://")):
        return _Cited(target, target.partition("#")[0])
    if target.startswith("thread:"):
        return _Cited(target, target)
    path, first, last = _placed(unquote(target))
    path = path.partition("#")[0].removeprefix("./")
    if ":" in path or not _NAMES_FILE.search(path):
        return None
    return _Cited(target, path, first, last)


def _named(text: str, known: _Known, heard: Sequence[str]) -> Iterator[_Cited]:
    for span in _SPAN.finditer(text):
        path, first, last = _placed(span[1])
        if span[2]:
            first, last = int(span[2]), int(span[3] or span[2])
        is_made_up = first and _LINED_FILE.fullmatch(path) and not _is_in(span[1], heard)
        if known.has_path(path) or is_made_up:
            yield _Cited(span[0].replace("`", ""), path, first, last)


def _bare(text: str, known: _Known, heard: Sequence[str]) -> Iterator[_Cited]:
    """Addresses that stand by themselves. One that was heard of, but not read, is no source."""
    plain = _LINK.sub(" ", _SPAN.sub(" ", text))
    for found in islice(_BARE.finditer(plain), MOST):
        target = found[0].rstrip(_AFTER)
        path = target.partition("#")[0]
        if known.has_path(path) or not _is_in(path, heard):
            yield _Cited(target, path)


def _placed(target: str) -> tuple[str, int, int]:
    """A path, and the lines that it names; 0 for none."""
    place = _PLACE.search(target)
    if place is None or target.startswith("thread:"):
        return target, 0, 0
    first = int(place[1])
    return target[: place.start()], first, int(place[2] or first)


class _Known:
    """What tools have returned."""

    def __init__(self, sources: Sequence[Source], said_before: Iterable[str]) -> None:
        self._lines: dict[str, list[tuple[int, int]]] = {}
        for source in sources:
            path = source.path.partition("#")[0] if source.kind is SourceKind.WEB else source.path
            self._lines.setdefault(path, []).append(_range(source.lines))
        self.before = list(said_before)

    def has_path(self, path: str) -> bool:
        return path in self._lines

    def has(self, cited: _Cited) -> bool:
        if cited.by_name:
            return any(_is_named(path, cited.path) for path in self._lines) or self._was_said(cited)
        ranges = self._lines.get(cited.path) or self._lines.get(cited.path.rstrip("/"))
        if ranges is None:
            entries = f"{cited.path}#"  # of a thread: whoever has read some may cite it
            is_thread = cited.path.startswith("thread:")
            is_read = is_thread and any(path.startswith(entries) for path in self._lines)
            return is_read or self._was_said(cited)
        if not cited.first:
            return True
        return any(first <= cited.last and cited.first <= last for first, last in ranges)

    def _was_said(self, cited: _Cited) -> bool:
        """In an earlier exchange, whose sources are not at hand: was the name in a result?"""
        return any(cited.path in text for text in self.before)


def _range(lines: str) -> tuple[int, int]:
    """`3–9` as numbers; a source without lines is all of it."""
    found = [int(number) for number in re.findall(r"\d+", lines)]
    if not found:
        return 0, 10**9
    return found[0], found[-1]


def _is_named(path: str, name: str) -> bool:
    known, wanted = (each.casefold().removesuffix(".md") for each in (path, name))
    return known == wanted or known.endswith(f"/{wanted}")
