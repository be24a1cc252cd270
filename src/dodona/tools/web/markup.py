"""HTML as a tree, read in time that grows with its length and no faster.

A parser that follows the standard compares each tag with all that are open: half a megabyte of
`<div>` keeps one busy for half a minute, in C, with the whole process waiting. Pages are written by
strangers, so this one reads less exactly and cannot be held up: the tree is no deeper than
`DEEPEST`, and holds no more than `MOST_NODES`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import unescape
from typing import Final, TypeAlias

DEEPEST: Final = 100
MOST_NODES: Final = 150_000
MOST_ATTRIBUTES: Final = 40

VOID: Final = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source"}
    | {"track", "wbr"}
)
_RAW: Final = frozenset({"iframe", "noembed", "noframes", "script", "style", "xmp"})
_RAW_ESCAPED: Final = frozenset({"textarea", "title"})

_CELLS: Final = frozenset({"td", "th"})
_ROWS: Final = frozenset({"tr"}) | _CELLS
_PARTS: Final = frozenset({"tbody", "tfoot", "thead"})
_TABLE: Final = frozenset({"table"})
_LISTS: Final = frozenset({"menu", "ol", "ul"})
_PARAGRAPH: Final = frozenset({"p"})
_BEGINS_BLOCK: Final = frozenset(
    {"address", "article", "aside", "blockquote", "details", "div", "dl", "fieldset", "figure"}
    | {"footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "main", "nav", "p"}
    | {"pre", "section"}
    | _LISTS
    | _TABLE
)
_WALLS: Final = _CELLS | _TABLE | {"button", "caption", "object", "template"}

# What a tag ends that was left open, and what it cannot look behind.
_ENDS: Final[dict[str, tuple[frozenset[str], frozenset[str]]]] = {
    "li": (frozenset({"li"}), _LISTS | _WALLS),
    "dt": (frozenset({"dd", "dt"}), frozenset({"dl"}) | _WALLS),
    "dd": (frozenset({"dd", "dt"}), frozenset({"dl"}) | _WALLS),
    "option": (frozenset({"option"}), frozenset({"select"}) | _WALLS),
    "td": (_CELLS, _TABLE),
    "th": (_CELLS, _TABLE),
    "tr": (_ROWS, _TABLE),
    **dict.fromkeys(_PARTS, (_ROWS | _PARTS, _TABLE)),
    **dict.fromkeys(_BEGINS_BLOCK, (_PARAGRAPH, _WALLS)),
}

_NAME = re.compile(r"[A-Za-z][^\s/>]{0,60}")
_SPACE = re.compile(r"[\s/]*+")
_ATTRIBUTE = re.compile(r"(=?[^\s/>=]*+)(\s*+=\s*+)?")
_HUGE = re.compile(r"&#([xX][0-9a-fA-F]{9,}|[0-9]{9,});?", re.ASCII)
_BARE = re.compile(r"[^\s>]*+")


@dataclass(slots=True)
class Element:
    tag: str
    attributes: dict[str, str] = field(default_factory=dict[str, str])
    children: list[Element | str] = field(default_factory=list["Element | str"])

    def text(self) -> str:
        """All text in it."""
        return "".join(self._texts())

    def walk(self) -> Iterator[Element]:
        """It and all elements in it, in the order of the page."""
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
    """The tree of a page. Whatever the text is, there is one."""
    tree = _Open()
    for number, token in enumerate(_tokens(text)):
        if number >= MOST_NODES:
            break
        if isinstance(token, str):
            tree.add(token)
        elif token.is_end:
            tree.end(token.name)
        else:
            tree.start(token)
    return tree.root


class _Open:
    """The elements that are open, the innermost last. What is not among them is not looked for."""

    def __init__(self) -> None:
        self.root = Element("")
        self._stack = [self.root]
        self._counts: Counter[str] = Counter()

    def add(self, node: Element | str) -> None:
        self._stack[-1].children.append(node)

    def start(self, tag: _Tag) -> None:
        ended, walls = _ENDS.get(tag.name, (frozenset[str](), frozenset[str]()))
        if any(self._counts[name] for name in ended):
            self._end_outermost(ended, walls)
        element = Element(tag.name, tag.attributes)
        self.add(element)
        if tag.name not in VOID and len(self._stack) <= DEEPEST:
            self._stack.append(element)
            self._counts[tag.name] += 1

    def end(self, name: str) -> None:
        """A stray end tag in a cell does not end what is around the table."""
        if not self._counts[name]:
            return
        is_table = name in _ROWS or name in _PARTS or name in _TABLE
        walls = _TABLE if is_table else _WALLS
        for at in range(len(self._stack) - 1, 0, -1):
            if self._stack[at].tag == name:
                self._close(at)
                return
            if self._stack[at].tag in walls:
                return

    def _end_outermost(self, ended: frozenset[str], walls: frozenset[str]) -> None:
        """End the outermost of these that no wall stands before."""
        found = 0
        for at in range(len(self._stack) - 1, 0, -1):
            if self._stack[at].tag in walls:
                break
            if self._stack[at].tag in ended:
                found = at
        if found:
            self._close(found)

    def _close(self, at: int) -> None:
        self._counts.subtract(element.tag for element in self._stack[at:])
        del self._stack[at:]


def _tokens(text: str) -> Iterator[_Token]:
    """Tags and the text between them. Where something is never closed, the page ends."""
    start = at = 0
    while (at := text.find("<", at)) >= 0:
        following = text[at + 1 : at + 2]
        if not (following.isascii() and following.isalpha()) and following not in {"!", "?", "/"}:
            at += 1  # only a sign
            continue
        if at > start:
            yield _unescaped(text[start:at])
        if following.isalpha() or text[at + 2 : at + 3].isalpha():
            tag, start = _tag(text, at)
            if tag is None:
                return
            yield tag
            if not tag.is_end and tag.name in _RAW | _RAW_ESCAPED:
                end = _raw_end(text, start, tag.name)
                raw = text[start:end]
                yield _unescaped(raw) if tag.name in _RAW_ESCAPED else raw
                start = end
        else:
            start = _comment_end(text, at)
            if start < 0:
                return
        at = start
    if start < len(text):
        yield _unescaped(text[start:])


def _unescaped(text: str) -> str:
    """Without escapes. Python raises for a number of thousands of digits, so none comes to it."""
    return unescape(_HUGE.sub("\ufffd", text)) if "&" in text else text


def _comment_end(text: str, at: int) -> int:
    """Behind a comment, or what is as good as one; -1 when it does not end."""
    sign = "-->" if text.startswith("<!--", at) else ">"
    end = text.find(sign, at + 2)  # <!--> is a whole comment
    return end if end < 0 else end + len(sign)


def _raw_end(text: str, at: int, name: str) -> int:
    found = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(text, at)
    return found.start() if found else len(text)


def _tag(text: str, at: int) -> tuple[_Tag | None, int]:
    """The tag that begins here, and where the text goes on; None when it does not end."""
    is_end = text[at + 1] == "/"
    name = _NAME.match(text, at + 1 + is_end)
    if name is None:  # </ä>: as good as a comment
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
        key, value, at = _attribute(text, at)
        if at < 0:
            return None, at
        if len(attributes) < MOST_ATTRIBUTES:
            attributes.setdefault(key, value)


def _attribute(text: str, at: int) -> tuple[str, str, int]:
    """A name, its value and where the next begins; -1 when its quote is never closed."""
    found = _ATTRIBUTE.match(text, at)
    assert found, "it fits any text"
    key, at = found[1].lower(), found.end()
    if not found[2]:
        return key, "", at
    quote = text[at : at + 1]
    if quote in {'"', "'"}:
        end = text.find(quote, at + 1)
        return key, _unescaped(text[at + 1 : end]), end if end < 0 else end + 1
    bare = _BARE.match(text, at)
    assert bare, "it fits any text"
    return key, _unescaped(bare[0]), bare.end()
