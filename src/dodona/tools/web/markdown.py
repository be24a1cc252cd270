"""Renders part of a page as Markdown-like text.

Headings, lists, tables, quotes, code and link targets are kept. Invisible text is dropped: that is
where instructions to agents are hidden.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from dodona.core.errors import DodonaError
from dodona.net.urls import WebAddress
from dodona.tools.web.markup import Element

MAX_CELL_CHARS: Final = 400
MAX_COLUMNS: Final = 20
# Each level adds a prefix to every line in it. A hundred nested quotes would make a page thirty
# times as long and take half a minute.
MAX_NESTING: Final = 8

DROPPED_TAGS: Final = frozenset(
    {"applet", "area", "aside", "audio", "button", "canvas", "datalist", "dialog", "embed"}
    | {"footer", "frame", "head", "iframe", "input", "link", "map", "meta", "meter", "nav"}
    | {"noembed", "noframes", "noscript", "object", "param", "progress", "script", "select"}
    | {"source", "style", "svg", "template", "textarea", "title", "track", "video"}
)
_DROPPED_ROLES: Final = frozenset(
    {"alert", "alertdialog", "banner", "complementary", "contentinfo", "dialog", "menu", "menubar"}
    | {"navigation", "search", "toolbar"}
)
_INLINE_TAGS: Final = frozenset(
    {"a", "abbr", "acronym", "b", "bdi", "bdo", "big", "br", "cite", "code", "data", "del", "dfn"}
    | {"em", "font", "i", "img", "ins", "kbd", "label", "mark", "math", "nobr", "q", "rp", "rt"}
    | {"ruby", "s", "samp", "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u"}
    | {"var", "wbr"}
)
_CODE_TAGS: Final = frozenset({"code", "kbd", "samp", "tt"})
_HEADING = re.compile(r"h([1-6])")
_HIDDEN_STYLE = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*(hidden|collapse)|opacity\s*:\s*0*\.?0*\s*(;|!|$)"
    r"|font-size\s*:\s*0*\.?0*\s*(px|em|rem|pt|%)?\s*(;|!|$)|(text-indent|left|top)\s*:\s*-\d{3}",
    re.IGNORECASE,
)
_SPACES = re.compile(r"[^\S\n]+")
_BREAKS = re.compile(r" ?\n ?")
_TICKS = re.compile(r"`+")


def is_content(element: Element) -> bool:
    """Whether an element is visible and part of the content."""
    attributes = element.attributes
    if element.tag in DROPPED_TAGS or "hidden" in attributes:
        return False
    if attributes.get("aria-hidden", "").lower() == "true":
        return False
    if attributes.get("role", "").lower() in _DROPPED_ROLES:
        return False
    return not _HIDDEN_STYLE.search(attributes.get("style", "")[:2_000])


def content_text(element: Element) -> str:
    """Return all visible text in an element."""
    parts: list[str] = []
    pending: list[Element | str] = [element]
    while pending:
        node = pending.pop()
        if isinstance(node, str):
            parts.append(node)
        elif node.tag == "br":
            parts.append("\n")
        elif node is element or is_content(node):
            pending.extend(reversed(node.children))
    return "".join(parts)


def render_markdown(element: Element, base: WebAddress) -> str:
    """Render an element as text; links are resolved against `base`."""
    return "\n\n".join(_MarkdownRenderer(base).render_blocks(element))


class _MarkdownRenderer:
    """Renders recursively: a tree is no deeper than `markup.MAX_DEPTH`."""

    def __init__(self, base: WebAddress) -> None:
        self._base = base
        self._inline_cache: dict[int, bool] = {}  # by element id
        self._nesting = 0  # current depth of quotes and lists

    def render_blocks(self, element: Element) -> list[str]:
        """Render the blocks of an element; inline text between them becomes a block too."""
        blocks: list[str] = []
        run: list[Element | str] = []
        for child in element.children:
            if isinstance(child, str) or self._is_inline(child):
                run.append(child)
                continue
            blocks += self._render_paragraph(run)
            run = []
            if is_content(child):
                blocks += self._render_block(child)
        return blocks + self._render_paragraph(run)

    def _is_inline(self, element: Element) -> bool:
        """Whether an element is inline. A link around a whole card is not."""
        is_inline = self._inline_cache.get(id(element))
        if is_inline is None:
            is_inline = element.tag in _INLINE_TAGS and all(
                isinstance(child, str) or not is_content(child) or self._is_inline(child)
                for child in element.children
            )
            self._inline_cache[id(element)] = is_inline
        return is_inline

    def _render_paragraph(self, run: Sequence[Element | str]) -> list[str]:
        text = self._render_inline(run)
        return [text] if text else []

    def _render_block(self, element: Element) -> list[str]:
        heading = _HEADING.fullmatch(element.tag)
        if heading:
            text = " ".join(self._render_inline(element.children).split())
            return [f"{'#' * int(heading[1])} {text}"] if text else []
        match element.tag:
            case "pre":
                return _fence_code(content_text(element))
            case "ul" | "ol" | "menu" | "blockquote" if self._nesting < MAX_NESTING:
                self._nesting += 1
                blocks = (
                    self._render_quote(element)
                    if element.tag == "blockquote"
                    else self._render_list(element)
                )
                self._nesting -= 1
                return blocks
            case "table":
                return self._render_table(element) or self.render_blocks(element)
            case "hr":
                return ["---"]
            case _:
                return self.render_blocks(element)

    def _render_quote(self, element: Element) -> list[str]:
        quoted = "\n\n".join(self.render_blocks(element))
        return [_prefix_lines(quoted, "> ", "> ")] if quoted else []

    def _render_list(self, element: Element) -> list[str]:
        lines: list[str] = []
        number = 0
        for child in element.children:
            if isinstance(child, str) or not is_content(child):
                continue
            text = "\n".join(self.render_blocks(child))
            if text:
                number += 1
                mark = f"{number}. " if element.tag == "ol" else "- "
                lines.append(_prefix_lines(text, mark, " " * len(mark)))
        return ["\n".join(lines)] if lines else []

    def _render_table(self, element: Element) -> list[str]:
        """Render a data table; return nothing for a table used for layout."""
        rows: list[list[str]] = []
        for row in _table_rows(element):
            cells = [c for c in row.children if isinstance(c, Element) and c.tag in {"td", "th"}]
            if any(below.tag in {"table", "ul", "ol", "pre"} for c in cells for below in c.walk()):
                return []
            texts = [" ".join(" ".join(self.render_blocks(cell)).split()) for cell in cells]
            if any(len(text) > MAX_CELL_CHARS for text in texts) or len(texts) > MAX_COLUMNS:
                return []
            if any(texts):
                rows.append([text.replace("|", "\\|") for text in texts])
        width = max(map(len, rows), default=0)
        if width < 2:
            return []
        lines = [f"| {' | '.join(row + [''] * (width - len(row)))} |" for row in rows]
        lines.insert(1, "|" + " --- |" * width)
        return ["\n".join(lines)]

    def _render_inline(self, nodes: Sequence[Element | str]) -> str:
        text = _SPACES.sub(" ", "".join(self._inline_parts(nodes)))
        return _BREAKS.sub("\n", text).strip()

    def _inline_parts(self, nodes: Sequence[Element | str]) -> Iterator[str]:
        for node in nodes:
            if isinstance(node, str):
                yield " ".join(node.splitlines()) + (" " if node.endswith("\n") else "")
            elif node.tag == "br":
                yield "\n"
            elif is_content(node):
                yield from self._render_inline_element(node)

    def _render_inline_element(self, element: Element) -> Iterator[str]:
        inner = "".join(self._inline_parts(element.children))
        if element.tag == "a" and (url := self._resolve_link(element)) and inner.strip():
            yield f"[{' '.join(inner.split())}]({url})"
        elif element.tag in _CODE_TAGS and inner.strip() and "`" not in inner:
            yield f"`{' '.join(inner.split())}`"
        else:
            yield inner

    def _resolve_link(self, element: Element) -> str:
        """Return the URL of a link, or "" if it stays on the page or cannot be fetched."""
        href = element.attributes.get("href", "").strip()
        if not href or href.startswith("#"):
            return ""
        try:
            return self._base.join(href).url
        except DodonaError:
            return ""


def _table_rows(table: Element) -> Iterator[Element]:
    for child in table.children:
        if isinstance(child, Element) and is_content(child):
            if child.tag == "tr":
                yield child
            elif child.tag in {"tbody", "tfoot", "thead"}:
                yield from _table_rows(child)


def _fence_code(text: str) -> list[str]:
    """Wrap code in a fence that is longer than any fence in it."""
    text = text.replace("\r\n", "\n").strip("\n").rstrip()
    if not text:
        return []
    longest = max((len(ticks) for ticks in _TICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}\n{text}\n{fence}"]


def _prefix_lines(text: str, first_prefix: str, rest_prefix: str) -> str:
    lines = text.split("\n")
    rest = [(rest_prefix + line).rstrip() for line in lines[1:]]
    return "\n".join([first_prefix + lines[0], *rest])
