"""Links between notes: where a text has them, which note they mean, and how to write one.

`[[Note]]`, `[[folder/Note.md#Heading|alias]]`, `![[Note^block]]` and `[text](../folder/note.md)`
are links. What stands in code or in a comment is none. A link without a target, as
`[[#Heading]]`, stays within its note and is passed over.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import quote, unquote

MAX_BACKTICKS: Final = 20  # of a code span; what begins with more is only text
MAX_INDENT_CHARS: Final = 100  # before a fence

# Every branch begins with a plain character: so what has none of them is passed over quickly.
_TOKEN: Final = re.compile(
    r"\\(?P<escaped>[\\\[\]`~<%])"
    r"|`(?P<ticks>`*)"
    r"|~(?P<tildes>~~+)"
    r"|<(?P<html>!--)"
    r"|%(?P<percent>%)"
    r"|\[\[(?P<wiki>[^\[\]\n|#^]+?)(?:[#^][^\[\]\n|]*?)?(?:\\?\|[^\[\]\n]*)?\]\]"
    r"|\]\([ \t]*(?:<(?P<angled>[^<>\n#]+\.[mM][dD])(?:#[^<>\n]*)?>"
    r"|(?P<bare>[^\s<>#\]]+?\.[mM][dD])(?=[)#\s]))"
)
_BEFORE_FENCE: Final = re.compile(r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?")
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_BLANK_LINE: Final = re.compile(r"\n[ \t\r]*\n")
_UNLINKABLE: Final = re.compile(r"[\[\]|#^]")  # what no wikilink can name
_FORBIDDEN_IN_TITLE: Final = re.compile(r"[\[\]|<>\s]+")  # what a title in a link must not have
_MUST_ENCODE: Final = re.compile(r"[\s()<>%#?\"\\]")


@dataclass(frozen=True, slots=True)
class Link:
    """A link to a note; `start` and `end` are where its target is written, and nothing else.

    The target of a Markdown link begins with `./`, `../` or `/`, for that is how it is meant.
    """

    target: str
    line: int
    start: int
    end: int
    is_markdown: bool = False


def find_links(text: str) -> Iterator[Link]:
    """Every link, in order. It takes time in proportion to the text, whatever is in it."""
    if "[[" not in text and "](" not in text:
        return
    ends = _BlockEnds(text)
    at, line, counted = 0, 1, 0
    while found := _TOKEN.search(text, at):
        kind = str(found.lastgroup)
        at = found.end()
        if kind in {"wiki", "angled", "bare"}:
            line += text.count("\n", counted, found.start())
            counted = found.start()
            if link := _build_link(found, kind, line):
                yield link
        elif kind != "escaped":
            at = ends.end_of(found)


def target_of(raw: str, *, is_markdown: bool) -> str:
    """What is meant by a target as it is written."""
    if not is_markdown:
        return raw
    target = unquote(raw)
    return target if target.startswith(("/", "./", "../")) else f"./{target}"


def format_target(
    path: str, *, like: Link, raw: str, resolver: LinkResolver, source: str
) -> str | None:
    """How to write the target of a link that means `path`, in the manner of the one it replaces.

    A wikilink gets the shortest form that means this note alone, a Markdown link the way from its
    note. None when a wikilink cannot name the note at all.
    """
    if like.is_markdown:
        return _relative_path(source, path, like=raw)
    ending = ".md" if raw.lower().endswith(".md") else ""
    return _shortest_target(path, resolver=resolver, source=source, suffix=ending)


def link_to(path: str, *, title: str, resolver: LinkResolver, source: str) -> str:
    """A link in the note `source` that shows a title."""
    shown = _FORBIDDEN_IN_TITLE.sub(" ", title).strip()
    form = _shortest_target(path, resolver=resolver, source=source)
    if form is None:
        return f"[{shown}]({_relative_path(source, path)})"
    return f"[[{form}]]" if shown in {"", form} else f"[[{form}|{shown}]]"


class LinkResolver:
    """The notes there are, by what links call them.

    A name that several notes have means the one nearest to the note with the link: the one with
    which it shares the most folders, then the least deep. A path from the root means what it says.
    Case and the way accents are encoded do not matter.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths: dict[str, str] = {}
        self._by_name: dict[str, list[str]] = {}
        for path in paths:
            key = _key(path)
            if key not in self._paths:
                self._paths[key] = path
                self._by_name.setdefault(key.rpartition("/")[2], []).append(key)

    def resolve(self, target: str, *, source: str) -> str | None:
        """The note that a link in `source` means, if there is one."""
        plain = target.strip().replace("\\", "/")
        key = _key(plain)
        if plain.startswith("/"):
            return self._paths.get(key.lstrip("/"))
        if plain.startswith(("./", "../")):
            near = _join_path(_key(source), key)
            if near in self._paths:
                return self._paths[near]
            if plain.startswith("../"):
                return None
            key = key.removeprefix("./")
        if "/" in key and key in self._paths:
            return self._paths[key]
        found = self._keys_ending_with(key)
        if len(found) > 1:
            found.sort(key=_distance_key(_key(source)))
        return self._paths[found[0]] if found else None

    def resolves_as_relative_path(self, target: str, *, source: str) -> bool:
        """Is it the way from `source` to a note, as every Markdown reader follows it?"""
        plain = target.strip().replace("\\", "/")
        return (
            plain.startswith(("./", "../")) and _join_path(_key(source), _key(plain)) in self._paths
        )

    def namesakes(self, path: str) -> list[str]:
        """The notes with the same name in any folder, itself too if it is there."""
        return [self._paths[key] for key in self._by_name.get(_key(path).rpartition("/")[2], ())]

    def candidate_targets(self, path: str) -> Iterator[str]:
        """What may name a note: the shortest that no other has, longer ones, and from the root."""
        parts = path[: -len(".md")].split("/")
        for count in range(1, len(parts) + 1):
            form = "/".join(parts[-count:])
            if count == len(parts) > 1 or len(self._keys_ending_with(_key(form))) == 1:
                yield form
        yield "/" + "/".join(parts)

    def _keys_ending_with(self, key: str) -> list[str]:
        """The notes whose paths end so."""
        known = self._by_name.get(key.rpartition("/")[2], ())
        return [path for path in known if path == key or path.endswith("/" + key)]


class _BlockEnds:
    """Where code and comments end. An end is looked for once, not again from every start."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._cached_spans: dict[str, tuple[int, int]] = {}

    def end_of(self, opening: re.Match[str]) -> int:
        """Where what begins here is over; right behind the mark if it never ends."""
        if opening.lastgroup == "html":
            return self._find_next("-->", opening.end())[1]
        if opening.lastgroup == "percent":
            return self._find_next("%%", opening.end())[1]
        if self._is_fence(opening):
            return self._fence_end(opening)
        return self._code_span_end(opening) if opening.lastgroup == "ticks" else opening.end()

    def _code_span_end(self, opening: re.Match[str]) -> int:
        """Code within a paragraph."""
        behind, count = opening.end(), len(opening[0])
        if count > MAX_BACKTICKS:
            return behind
        begin, end = self._find_next(rf"(?<!`)`{{{count}}}(?!`)", behind)
        return behind if _BLANK_LINE.search(self._text, behind, begin) else end

    def _is_fence(self, opening: re.Match[str]) -> bool:
        if len(opening[0]) < 3:
            return False
        earliest = max(opening.start() - MAX_INDENT_CHARS, 0)
        line = self._text.rfind("\n", earliest, opening.start()) + 1
        if line == 0 and earliest > 0:
            return False
        if not _BEFORE_FENCE.fullmatch(self._text, line, opening.start()):
            return False
        end = self._text.find("\n", opening.end())
        rest = self._text[opening.end() : end if end >= 0 else None]
        return opening[0][0] == "~" or "`" not in rest

    def _fence_end(self, opening: re.Match[str]) -> int:
        """A fence that is not closed goes on to the end of the note."""
        mark = opening[0]
        closing = rf"(?m)^[ \t>]*{mark[0]}{{{min(len(mark), MAX_BACKTICKS)},}}[ \t\r]*$"
        found = re.compile(closing).search(self._text, opening.end())
        return found.end() if found else len(self._text)

    def _find_next(self, pattern: str, start: int) -> tuple[int, int]:
        """The next place of a pattern; an empty one at the start if there is none."""
        known = self._cached_spans.get(pattern)
        if known is None or 0 <= known[0] < start:
            found = re.compile(pattern).search(self._text, start)
            known = self._cached_spans[pattern] = found.span() if found else (-1, -1)
        return known if known[0] >= 0 else (start, start)


def _build_link(match: re.Match[str], kind: str, line: int) -> Link | None:
    raw = match[kind]
    start, end = match.span(kind)
    if kind == "wiki":
        target = raw.strip()
        start += len(raw) - len(raw.lstrip())
        return Link(target, line, start, start + len(target)) if target else None
    if _SCHEME.match(unquote(raw)):
        return None
    return Link(target_of(raw, is_markdown=True), line, start, end, is_markdown=True)


def _shortest_target(
    path: str, *, resolver: LinkResolver, source: str, suffix: str = ""
) -> str | None:
    for form in resolver.candidate_targets(path):
        text = form + suffix
        if not _UNLINKABLE.search(text) and resolver.resolve(text, source=source) == path:
            return text
    return None


def _relative_path(source: str, path: str, *, like: str = "") -> str:
    """The way from a note to another, as a Markdown link has it."""
    here, there = PurePosixPath(source).parent.parts, PurePosixPath(path).parts
    shared = _count_shared_folders(here, there[:-1])
    way = "/".join([*[".."] * (len(here) - shared), *there[shared:]])
    if like.startswith("/"):
        way = f"/{path}"
    elif like.startswith("./") and not way.startswith("../"):
        way = f"./{way}"
    return _MUST_ENCODE.sub(lambda found: quote(found[0]), way)


def _count_shared_folders(here: Sequence[str], there: Sequence[str]) -> int:
    """How many folders two paths have in common."""
    pairs = zip(here, there, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _key(target: str) -> str:
    bare = target[: -len(".md")] if target.lower().endswith(".md") else target
    return bare.casefold() if bare.isascii() else unicodedata.normalize("NFC", bare).casefold()


def _join_path(source: str, relative: str) -> str:
    """Where a way leads from a note; a way out of the vault leads nowhere."""
    parts = source.split("/")[:-1]
    for part in relative.split("/"):
        if part == "..":
            if not parts:
                return ""
            parts.pop()
        elif part not in {"", "."}:
            parts.append(part)
    return "/".join(parts)


def _distance_key(source: str) -> Callable[[str], tuple[int, int, str]]:
    """By what the notes of a name are ordered for a link in `source`."""
    here = source.split("/")[:-1]

    def order(path: str) -> tuple[int, int, str]:
        there = path.split("/")[:-1]
        return -_count_shared_folders(here, there), len(there), path

    return order
