"""Parses HTML into a tree in linear time.

A standard parser compares each tag with all open ones: half a megabyte of `<div>` keeps one busy
for half a minute, in C, while the whole process waits. Pages are untrusted, so this parser is less
exact but bounded: the tree has at most `MAX_DEPTH` levels and `MAX_NODES` nodes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import unescape
from typing import Final, TypeAlias

MAX_DEPTH: Final = 100
MAX_NODES: Final = 150_000
MAX_ATTRIBUTES: Final = 40

VOID_TAGS: Final = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source"}
    | {"track", "wbr"}
)
_RAW_TEXT_TAGS: Final = frozenset({"iframe", "noembed", "noframes", "script", "style", "xmp"})
_ESCAPABLE_RAW_TEXT_TAGS: Final = frozenset({"textarea", "title"})

_CELL_TAGS: Final = frozenset({"td", "th"})
_ROW_TAGS: Final = frozenset({"tr"}) | _CELL_TAGS
_TABLE_SECTION_TAGS: Final = frozenset({"tbody", "tfoot", "thead"})
_TABLE_TAG: Final = frozenset({"table"})
_LIST_TAGS: Final = frozenset({"menu", "ol", "ul"})
_PARAGRAPH_TAG: Final = frozenset({"p"})
_PARAGRAPH_CLOSING_TAGS: Final = frozenset(
    {"address", "article", "aside", "blockquote", "details", "div", "dl", "fieldset", "figure"}
    | {"footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "main", "nav", "p"}
    | {"pre", "section"}
    | _LIST_TAGS
    | _TABLE_TAG
)
_SCOPE_BOUNDARIES: Final = _CELL_TAGS | _TABLE_TAG | {"button", "caption", "object", "template"}

# For each tag: the open tags that it closes implicitly, and the tags that stop the search.
_IMPLIED_END_TAGS: Final[dict[str, tuple[frozenset[str], frozenset[str]]]] = {
    "li": (frozenset({"li"}), _LIST_TAGS | _SCOPE_BOUNDARIES),
    "dt": (frozenset({"dd", "dt"}), frozenset({"dl"}) | _SCOPE_BOUNDARIES),
    "dd": (frozenset({"dd", "dt"}), frozenset({"dl"}) | _SCOPE_BOUNDARIES),
    "option": (frozenset({"option"}), frozenset({"select"}) | _SCOPE_BOUNDARIES),
    "td": (_CELL_TAGS, _TABLE_TAG),
    "th": (_CELL_TAGS, _TABLE_TAG),
    "tr": (_ROW_TAGS, _TABLE_TAG),
    **dict.fromkeys(_TABLE_SECTION_TAGS, (_ROW_TAGS | _TABLE_SECTION_TAGS, _TABLE_TAG)),
    **dict.fromkeys(_PARAGRAPH_CLOSING_TAGS, (_PARAGRAPH_TAG, _SCOPE_BOUNDARIES)),
}

_NAME = re.compile(r"[A-Za-z][^\s/>]{0,60}")
_SPACE = re.compile(r"[\s/]*+")
_ATTRIBUTE = re.compile(r"(=?[^\s/>=]*+)(\s*+=\s*+)?")
_HUGE_CHARACTER_REFERENCE = re.compile(r"&#([xX][0-9a-fA-F]{9,}|[0-9]{9,});?", re.ASCII)
_UNQUOTED_VALUE = re.compile(r"[^\s>]*+")


@dataclass(slots=True)
class Element:
    """An HTML element with its attributes and children."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict[str, str])
    children: list[Element | str] = field(default_factory=list["Element | str"])

    def text(self) -> str:
        """Return all text in the element."""
        return "".join(self._texts())

    def walk(self) -> Iterator[Element]:
        """Yield the element and its descendants in document order."""
        pending: list[Element] = [self]
        while pending:
            element = pending.pop()
            yield element
            pending.extend(c for c in reversed(element.children) if isinstance(c, Element))

    def _texts(self) -> Iterator[str]:
        pending: list[Element | str] = [self]
        while pending:
            node = pending.pop()
            if isinstance(node, str):
                yield node
            else:
                pending.extend(reversed(node.children))


@dataclass(frozen=True, slots=True)
class _Tag:
    name: str
    is_end: bool
    attributes: dict[str, str]


_Token: TypeAlias = _Tag | str


def read_html(text: str) -> Element:
    """Parse a page into a tree. Never fails, whatever the text is."""
    tree = _TreeBuilder()
    for number, token in enumerate(_tokenize(text)):
        if number >= MAX_NODES:
            break
        if isinstance(token, str):
            tree.add(token)
        elif token.is_end:
            tree.close_element(token.name)
        else:
            tree.open_element(token)
    return tree.root


class _TreeBuilder:
    """Builds the tree on a stack of open elements, innermost last.

    `_counts` avoids searching the stack for a tag that is not open.
    """

    def __init__(self) -> None:
        self.root = Element("")
        self._stack = [self.root]
        self._counts: Counter[str] = Counter()

    def add(self, node: Element | str) -> None:
        self._stack[-1].children.append(node)

    def open_element(self, tag: _Tag) -> None:
        closed_tags, boundaries = _IMPLIED_END_TAGS.get(
            tag.name, (frozenset[str](), frozenset[str]())
        )
        if any(self._counts[name] for name in closed_tags):
            self._close_outermost(closed_tags, boundaries)
        element = Element(tag.name, tag.attributes)
        self.add(element)
        if tag.name not in VOID_TAGS and len(self._stack) <= MAX_DEPTH:
            self._stack.append(element)
            self._counts[tag.name] += 1

    def close_element(self, name: str) -> None:
        """Close the innermost element with this tag.

        A stray end tag in a table cell does not close elements around the table.
        """
        if not self._counts[name]:
            return
        is_table = name in _ROW_TAGS or name in _TABLE_SECTION_TAGS or name in _TABLE_TAG
        boundaries = _TABLE_TAG if is_table else _SCOPE_BOUNDARIES
        for at in range(len(self._stack) - 1, 0, -1):
            if self._stack[at].tag == name:
                self._pop_from(at)
                return
            if self._stack[at].tag in boundaries:
                return

    def _close_outermost(self, closed_tags: frozenset[str], boundaries: frozenset[str]) -> None:
        """Close the outermost of these tags that is inside all boundaries."""
        outermost = 0
        for at in range(len(self._stack) - 1, 0, -1):
            if self._stack[at].tag in boundaries:
                break
            if self._stack[at].tag in closed_tags:
                outermost = at
        if outermost:
            self._pop_from(outermost)

    def _pop_from(self, index: int) -> None:
        self._counts.subtract(element.tag for element in self._stack[index:])
        del self._stack[index:]


def _tokenize(text: str) -> Iterator[_Token]:
    """Yield tags and the text between them. An unclosed tag or comment ends the page."""
    start = at = 0
    while (at := text.find("<", at)) >= 0:
        next_char = text[at + 1 : at + 2]
        if not (next_char.isascii() and next_char.isalpha()) and next_char not in {"!", "?", "/"}:
            at += 1  # a literal "<"
            continue
        if at > start:
            yield _unescape(text[start:at])
        if next_char.isalpha() or text[at + 2 : at + 3].isalpha():
            tag, start = _read_tag(text, at)
            if tag is None:
                return
            yield tag
            if not tag.is_end and tag.name in _RAW_TEXT_TAGS | _ESCAPABLE_RAW_TEXT_TAGS:
                end = _raw_end(text, start, tag.name)
                raw = text[start:end]
                yield _unescape(raw) if tag.name in _ESCAPABLE_RAW_TEXT_TAGS else raw
                start = end
        else:
            start = _comment_end(text, at)
            if start < 0:
                return
        at = start
    if start < len(text):
        yield _unescape(text[start:])


def _unescape(text: str) -> str:
    """Resolve character references; huge ones are replaced, as Python would raise on them."""
    return unescape(_HUGE_CHARACTER_REFERENCE.sub("\ufffd", text)) if "&" in text else text


def _comment_end(text: str, at: int) -> int:
    """Return the index after a comment or declaration; -1 if it is not closed."""
    terminator = "-->" if text.startswith("<!--", at) else ">"
    end = text.find(terminator, at + 2)  # <!--> is a whole comment
    return end if end < 0 else end + len(terminator)


def _raw_end(text: str, at: int, name: str) -> int:
    match = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(text, at)
    return match.start() if match else len(text)


def _read_tag(text: str, at: int) -> tuple[_Tag | None, int]:
    """Return the tag at this index and the index after it; None if it is not closed."""
    is_end = text[at + 1] == "/"
    name = _NAME.match(text, at + 1 + is_end)
    if name is None:  # </ä> is treated like a comment
        end = text.find(">", at)
        return (None, at) if end < 0 else (_Tag("", True, {}), end + 1)
    attributes: dict[str, str] = {}
    at = name.end()
    while True:
        space = _SPACE.match(text, at)
        at = space.end() if space else at
        if at >= len(text):
            return None, at
        if text[at] == ">":
            return _Tag(name[0].lower(), is_end, attributes), at + 1
        key, value, at = _read_attribute(text, at)
        if at < 0:
            return None, at
        if len(attributes) < MAX_ATTRIBUTES:
            attributes.setdefault(key, value)


def _read_attribute(text: str, at: int) -> tuple[str, str, int]:
    """Return name, value and the index after them; -1 if the quote is not closed."""
    match = _ATTRIBUTE.match(text, at)
    assert match, "the pattern matches any text"
    key, at = match[1].lower(), match.end()
    if not match[2]:
        return key, "", at
    quote = text[at : at + 1]
    if quote in {'"', "'"}:
        end = text.find(quote, at + 1)
        return key, _unescape(text[at + 1 : end]), end if end < 0 else end + 1
    bare = _UNQUOTED_VALUE.match(text, at)
    assert bare, "the pattern matches any text"
    return key, _unescape(bare[0]), bare.end()
