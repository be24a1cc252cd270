"""A part of a page as text in the manner of Markdown.

Headings, lists, tables, quotes and code keep their shape; links keep where they lead. What nobody
sees on the page is not there: it is where orders to agents are hidden.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from dodona.core.errors import DodonaError
from dodona.net.urls import WebAddress
from dodona.tools.web.markup import Element

LONGEST_CELL: Final = 400
MOST_COLUMNS: Final = 20
# Each mark is put before every line within. A hundred quotes in one another would make a page
# thirty times as long, and take half a minute.
MOST_MARKS: Final = 8

DROPPED: Final = frozenset(
    {"applet", "area", "aside", "audio", "button", "canvas", "datalist", "dialog", "embed"}
    | {"footer", "frame", "head", "iframe", "input", "link", "map", "meta", "meter", "nav"}
    | {"noembed", "noframes", "noscript", "object", "param", "progress", "script", "select"}
    | {"source", "style", "svg", "template", "textarea", "title", "track", "video"}
)
_ROLES: Final = frozenset(
    {"alert", "alertdialog", "banner", "complementary", "contentinfo", "dialog", "menu", "menubar"}
    | {"navigation", "search", "toolbar"}
)
_INLINE: Final = frozenset(
    {"a", "abbr", "acronym", "b", "bdi", "bdo", "big", "br", "cite", "code", "data", "del", "dfn"}
    | {"em", "font", "i", "img", "ins", "kbd", "label", "mark", "math", "nobr", "q", "rp", "rt"}
    | {"ruby", "s", "samp", "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u"}
    | {"var", "wbr"}
)
_CODE: Final = frozenset({"code", "kbd", "samp", "tt"})
_HEADING = re.compile(r"h([1-6])")
_UNSEEN = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*(hidden|collapse)|opacity\s*:\s*0*\.?0*\s*(;|!|$)"
    r"|font-size\s*:\s*0*\.?0*\s*(px|em|rem|pt|%)?\s*(;|!|$)|(text-indent|left|top)\s*:\s*-\d{3}",
    re.IGNORECASE,
)
_SPACES = re.compile(r"[^\S\n]+")
_BREAKS = re.compile(r" ?\n ?")
_TICKS = re.compile(r"`+")


def is_seen(element: Element) -> bool:
    """Is it there for who reads the page, and part of what they came for?"""
    attributes = element.attributes
    if element.tag in DROPPED or "hidden" in attributes:
        return False
    if attributes.get("aria-hidden", "").lower() == "true":
        return False
    if attributes.get("role", "").lower() in _ROLES:
        return False
    return not _UNSEEN.search(attributes.get("style", "")[:2_000])


def seen_text(element: Element) -> str:
    """All text in it that is seen."""
    found: list[str] = []
    pending: list[Element | str] = [element]
    while pending:
        node = pending.pop()
        if isinstance(node, str):
            found.append(node)
        elif node.tag == "br":
            found.append("\n")
        elif node is element or is_seen(node):
            pending.extend(reversed(node.children))
    return "".join(found)


def markdown(element: Element, base: WebAddress) -> str:
    """The text of an element; links are resolved from `base`."""
    return "\n\n".join(_Rendering(base).blocks(element))


class _Rendering:
    """Recursive: a tree is no deeper than `markup.DEEPEST`."""

    def __init__(self, base: WebAddress) -> None:
        self._base = base
        self._in_line: dict[int, bool] = {}  # by the element's id
        self._marks = 0  # of the quotes and lists that we are in

    def blocks(self, element: Element) -> list[str]:
        """The blocks of an element; what runs between them is a block as well."""
        found: list[str] = []
        run: list[Element | str] = []
        for child in element.children:
            if isinstance(child, str) or self._runs(child):
                run.append(child)
                continue
            found += self._paragraph(run)
            run = []
            if is_seen(child):
                found += self._block(child)
        return found + self._paragraph(run)

    def _runs(self, element: Element) -> bool:
        """Does it stand in a line? A link around a whole card does not."""
        known = self._in_line.get(id(element))
        if known is None:
            known = element.tag in _INLINE and all(
                isinstance(child, str) or not is_seen(child) or self._runs(child)
                for child in element.children
            )
            self._in_line[id(element)] = known
        return known

    def _paragraph(self, run: Sequence[Element | str]) -> list[str]:
        text = self._line(run)
        return [text] if text else []

    def _block(self, element: Element) -> list[str]:
        heading = _HEADING.fullmatch(element.tag)
        if heading:
            text = " ".join(self._line(element.children).split())
            return [f"{'#' * int(heading[1])} {text}"] if text else []
        match element.tag:
            case "pre":
                return _fenced(seen_text(element))
            case "ul" | "ol" | "menu" | "blockquote" if self._marks < MOST_MARKS:
                self._marks += 1
                found = self._quote(element) if element.tag == "blockquote" else self._list(element)
                self._marks -= 1
                return found
            case "table":
                return self._table(element) or self.blocks(element)
            case "hr":
                return ["---"]
            case _:
                return self.blocks(element)

    def _quote(self, element: Element) -> list[str]:
        quoted = "\n\n".join(self.blocks(element))
        return [_prefixed(quoted, "> ", "> ")] if quoted else []

    def _list(self, element: Element) -> list[str]:
        lines: list[str] = []
        number = 0
        for child in element.children:
            if isinstance(child, str) or not is_seen(child):
                continue
            text = "\n".join(self.blocks(child))
            if text:
                number += 1
                mark = f"{number}. " if element.tag == "ol" else "- "
                lines.append(_prefixed(text, mark, " " * len(mark)))
        return ["\n".join(lines)] if lines else []

    def _table(self, element: Element) -> list[str]:
        """The rows of a table that holds data; none of one that only places things."""
        rows: list[list[str]] = []
        for row in _rows(element):
            cells = [c for c in row.children if isinstance(c, Element) and c.tag in {"td", "th"}]
            if any(below.tag in {"table", "ul", "ol", "pre"} for c in cells for below in c.walk()):
                return []
            texts = [" ".join(" ".join(self.blocks(cell)).split()) for cell in cells]
            if any(len(text) > LONGEST_CELL for text in texts) or len(texts) > MOST_COLUMNS:
                return []
            if any(texts):
                rows.append([text.replace("|", "\\|") for text in texts])
        width = max(map(len, rows), default=0)
        if width < 2:
            return []
        lines = [f"| {' | '.join(row + [''] * (width - len(row)))} |" for row in rows]
        lines.insert(1, "|" + " --- |" * width)
        return ["\n".join(lines)]

    def _line(self, nodes: Sequence[Element | str]) -> str:
        text = _SPACES.sub(" ", "".join(self._pieces(nodes)))
        return _BREAKS.sub("\n", text).strip()

    def _pieces(self, nodes: Sequence[Element | str]) -> Iterator[str]:
        for node in nodes:
            if isinstance(node, str):
                yield " ".join(node.splitlines()) + (" " if node.endswith("\n") else "")
            elif node.tag == "br":
                yield "\n"
            elif is_seen(node):
                yield from self._piece(node)

    def _piece(self, element: Element) -> Iterator[str]:
        inner = "".join(self._pieces(element.children))
        if element.tag == "a" and (url := self._link(element)) and inner.strip():
            yield f"[{' '.join(inner.split())}]({url})"
        elif element.tag in _CODE and inner.strip() and "`" not in inner:
            yield f"`{' '.join(inner.split())}`"
        else:
            yield inner

    def _link(self, element: Element) -> str:
        """Where a link leads, unless that is this page or nothing that can be fetched."""
        href = element.attributes.get("href", "").strip()
        if not href or href.startswith("#"):
            return ""
        try:
            return self._base.join(href).url
        except DodonaError:
            return ""


def _rows(table: Element) -> Iterator[Element]:
    for child in table.children:
        if isinstance(child, Element) and is_seen(child):
            if child.tag == "tr":
                yield child
            elif child.tag in {"tbody", "tfoot", "thead"}:
                yield from _rows(child)


def _fenced(text: str) -> list[str]:
    """Code as it is, in a fence that is longer than any in it."""
    text = text.replace("\r\n", "\n").strip("\n").rstrip()
    if not text:
        return []
    longest = max((len(ticks) for ticks in _TICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}\n{text}\n{fence}"]


def _prefixed(text: str, first: str, following: str) -> str:
    lines = text.split("\n")
    behind = [(following + line).rstrip() for line in lines[1:]]
    return "\n".join([first + lines[0], *behind])
