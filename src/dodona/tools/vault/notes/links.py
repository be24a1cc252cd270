"""Links between notes: finding them in text, resolving them, and writing them.

`[[Note]]`, `[[folder/Note.md#Heading|alias]]`, `![[Note^block]]` and `[text](../folder/note.md)`
are links. Links in code or comments do not count. A link without a target, such as `[[#Heading]]`,
stays within its note and is ignored.
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

MAX_BACKTICKS: Final = 20  # longer runs do not open a code span
MAX_INDENT_CHARS: Final = 100  # before a fence

# Every branch starts with a literal character, so that other text is skipped quickly.
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
_UNLINKABLE: Final = re.compile(r"[\[\]|#^]")  # not allowed in a wikilink target
_FORBIDDEN_IN_TITLE: Final = re.compile(r"[\[\]|<>\s]+")  # not allowed in a link title
_MUST_ENCODE: Final = re.compile(r"[\s()<>%#?\"\\]")


@dataclass(frozen=True, slots=True)
class Link:
    """A link to a note; `start` and `end` delimit only its target.

    The target of a Markdown link starts with `./`, `../` or `/`, because it is a relative path.
    """

    target: str
    line: int
    start: int
    end: int
    is_markdown: bool = False


def find_links(text: str) -> Iterator[Link]:
    """Yield every link in order, in linear time."""
    if "[[" not in text and "](" not in text:
        return
    ends = _BlockEnds(text)
    at, line, counted = 0, 1, 0
    while match := _TOKEN.search(text, at):
        kind = str(match.lastgroup)
        at = match.end()
        if kind in {"wiki", "angled", "bare"}:
            line += text.count("\n", counted, match.start())
            counted = match.start()
            if link := _build_link(match, kind, line):
                yield link
        elif kind != "escaped":
            at = ends.end_of(match)


def target_of(raw: str, *, is_markdown: bool) -> str:
    """Return the meaning of a raw link target."""
    if not is_markdown:
        return raw
    target = unquote(raw)
    return target if target.startswith(("/", "./", "../")) else f"./{target}"


def format_target(
    path: str, *, like: Link, raw: str, resolver: LinkResolver, source: str
) -> str | None:
    """Return the text of a link target that refers to `path`, in the style of the old link.

    A wikilink gets the shortest form that refers to this note only, a Markdown link the relative
    path. None if a wikilink cannot refer to the note.
    """
    if like.is_markdown:
        return _relative_path(source, path, like=raw)
    ending = ".md" if raw.lower().endswith(".md") else ""
    return _shortest_target(path, resolver=resolver, source=source, suffix=ending)


def link_to(path: str, *, title: str, resolver: LinkResolver, source: str) -> str:
    """Return a link in the note `source` with a title."""
    label = _FORBIDDEN_IN_TITLE.sub(" ", title).strip()
    target = _shortest_target(path, resolver=resolver, source=source)
    if target is None:
        return f"[{label}]({_relative_path(source, path)})"
    return f"[[{target}]]" if label in {"", target} else f"[[{target}|{label}]]"


class LinkResolver:
    """Resolves link targets to notes.

    A name that several notes have refers to the note nearest to the link's source: the one that
    shares the most folders with it, then the least deep. A path from the root is taken literally.
    Case and Unicode encoding are ignored.
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
        """Return the note that a link in `source` refers to, or None."""
        normalized = target.strip().replace("\\", "/")
        key = _key(normalized)
        if normalized.startswith("/"):
            return self._paths.get(key.lstrip("/"))
        if normalized.startswith(("./", "../")):
            joined = _join_path(_key(source), key)
            if joined in self._paths:
                return self._paths[joined]
            if normalized.startswith("../"):
                return None
            key = key.removeprefix("./")
        if "/" in key and key in self._paths:
            return self._paths[key]
        candidates = self._keys_ending_with(key)
        if len(candidates) > 1:
            candidates.sort(key=_distance_key(_key(source)))
        return self._paths[candidates[0]] if candidates else None

    def resolves_as_relative_path(self, target: str, *, source: str) -> bool:
        """Whether the target is a relative path from `source` to a note."""
        normalized = target.strip().replace("\\", "/")
        return (
            normalized.startswith(("./", "../"))
            and _join_path(_key(source), _key(normalized)) in self._paths
        )

    def namesakes(self, path: str) -> list[str]:
        """Return the notes with the same name in any folder, including the note itself."""
        return [self._paths[key] for key in self._by_name.get(_key(path).rpartition("/")[2], ())]

    def candidate_targets(self, path: str) -> Iterator[str]:
        """Yield targets for a note: unique suffixes, shortest first, then the absolute path."""
        parts = path[: -len(".md")].split("/")
        for count in range(1, len(parts) + 1):
            target = "/".join(parts[-count:])
            if count == len(parts) > 1 or len(self._keys_ending_with(_key(target))) == 1:
                yield target
        yield "/" + "/".join(parts)

    def _keys_ending_with(self, key: str) -> list[str]:
        """Return the notes whose path ends with a key."""
        same_name = self._by_name.get(key.rpartition("/")[2], ())
        return [path for path in same_name if path == key or path.endswith("/" + key)]


class _BlockEnds:
    """Finds the ends of code and comments. Each end is searched only once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._cached_spans: dict[str, tuple[int, int]] = {}

    def end_of(self, opening: re.Match[str]) -> int:
        """Return the end of a block; the end of its opening mark if it is not closed."""
        if opening.lastgroup == "html":
            return self._find_next("-->", opening.end())[1]
        if opening.lastgroup == "percent":
            return self._find_next("%%", opening.end())[1]
        if self._is_fence(opening):
            return self._fence_end(opening)
        return self._code_span_end(opening) if opening.lastgroup == "ticks" else opening.end()

    def _code_span_end(self, opening: re.Match[str]) -> int:
        """Return the end of an inline code span."""
        content_start, count = opening.end(), len(opening[0])
        if count > MAX_BACKTICKS:
            return content_start
        begin, end = self._find_next(rf"(?<!`)`{{{count}}}(?!`)", content_start)
        return content_start if _BLANK_LINE.search(self._text, content_start, begin) else end

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
        """Return the end of a fence; an unclosed fence extends to the end of the note."""
        mark = opening[0]
        closing = rf"(?m)^[ \t>]*{mark[0]}{{{min(len(mark), MAX_BACKTICKS)},}}[ \t\r]*$"
        match = re.compile(closing).search(self._text, opening.end())
        return match.end() if match else len(self._text)

    def _find_next(self, pattern: str, start: int) -> tuple[int, int]:
        """Return the next match of a pattern; an empty span at the start if there is none."""
        cached = self._cached_spans.get(pattern)
        if cached is None or 0 <= cached[0] < start:
            match = re.compile(pattern).search(self._text, start)
            cached = self._cached_spans[pattern] = match.span() if match else (-1, -1)
        return cached if cached[0] >= 0 else (start, start)


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
    for target in resolver.candidate_targets(path):
        text = target + suffix
        if not _UNLINKABLE.search(text) and resolver.resolve(text, source=source) == path:
            return text
    return None


def _relative_path(source: str, path: str, *, like: str = "") -> str:
    """Return the relative path between two notes, as a Markdown link target."""
    source_folders, path_parts = PurePosixPath(source).parent.parts, PurePosixPath(path).parts
    shared = _count_shared_folders(source_folders, path_parts[:-1])
    relative = "/".join([*[".."] * (len(source_folders) - shared), *path_parts[shared:]])
    if like.startswith("/"):
        relative = f"/{path}"
    elif like.startswith("./") and not relative.startswith("../"):
        relative = f"./{relative}"
    return _MUST_ENCODE.sub(lambda match: quote(match[0]), relative)


def _count_shared_folders(first: Sequence[str], second: Sequence[str]) -> int:
    """Count the leading folders that two paths share."""
    pairs = zip(first, second, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _key(target: str) -> str:
    bare = target[: -len(".md")] if target.lower().endswith(".md") else target
    return bare.casefold() if bare.isascii() else unicodedata.normalize("NFC", bare).casefold()


def _join_path(source: str, relative: str) -> str:
    """Resolve a relative path from a note; "" if it leaves the vault."""
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
    """Return a sort key that orders notes with one name for a link in `source`."""
    source_folders = source.split("/")[:-1]

    def order(path: str) -> tuple[int, int, str]:
        folders = path.split("/")[:-1]
        return -_count_shared_folders(source_folders, folders), len(folders), path

    return order
