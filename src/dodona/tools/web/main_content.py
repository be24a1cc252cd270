"""Extracts the title and the main content of a page.

The main content is the part that the page marks as such, else the block with most running text, or
the whole page when no part stands out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dodona.core.errors import DodonaError
from dodona.net.urls import WebAddress
from dodona.tools.web.markdown import is_content, render_markdown
from dodona.tools.web.markup import Element, read_html

MAX_TITLE_CHARS: Final = 200
MIN_MARKED_SHARE: Final = 0.2  # share of all text that a marked part must have
MIN_DENSE_SHARE: Final = 0.7  # share of all running text that a block must have
MIN_TEXT_CHARS: Final = 250  # a page with less text is kept whole
FORM_SHARE: Final = 0.5  # larger forms stay: some sites put the whole page into one

_TEXT_TAGS: Final = frozenset({"blockquote", "dd", "li", "p", "pre"})
_BLOCK_TAGS: Final = frozenset({"article", "body", "div", "section", "td"})


@dataclass(frozen=True, slots=True)
class PageContent:
    """The title and the readable text of a page."""

    title: str
    text: str


def extract_content(html: str, address: WebAddress) -> PageContent:
    """Return the title and readable text of a page at this address."""
    root = read_html(html)
    title = _find_title(root)
    base = _base_address(root, address)
    pruned = _prune(root)
    sizes = _text_sizes(pruned)
    _remove_forms(pruned, sizes)
    return PageContent(title, render_markdown(_find_main(pruned, sizes), base))


def _find_title(root: Element) -> str:
    """Return the `<title>`, else `og:title`, else the first `<h1>`."""
    firsts: dict[str, str] = {}
    for element in root.walk():
        if element.tag in {"title", "h1"} and element.tag not in firsts:
            firsts[element.tag] = element.text()
        elif element.tag == "meta" and element.attributes.get("property") == "og:title":
            firsts.setdefault("meta", element.attributes.get("content", ""))
    texts = (" ".join(firsts.get(kind, "").split()) for kind in ("title", "meta", "h1"))
    return next(filter(None, texts), "")[:MAX_TITLE_CHARS]


def _base_address(root: Element, address: WebAddress) -> WebAddress:
    hrefs = (
        e.attributes["href"] for e in root.walk() if e.tag == "base" and "href" in e.attributes
    )
    try:
        return address.join(next(hrefs, ""))
    except DodonaError:
        return address


def _prune(element: Element) -> Element:
    """Copy the element without invisible parts. The depth limit makes recursion safe."""
    children = [
        child if isinstance(child, str) else _prune(child)
        for child in element.children
        if isinstance(child, str) or is_content(child)
    ]
    return Element(element.tag, element.attributes, children)


def _text_sizes(root: Element) -> dict[int, int]:
    """Count the characters in each element, by the element's id."""
    sizes: dict[int, int] = {}
    for element in reversed(list(root.walk())):
        sizes[id(element)] = sum(
            len(child.strip()) if isinstance(child, str) else sizes[id(child)]
            for child in element.children
        )
    return sizes


def _remove_forms(root: Element, sizes: dict[int, int]) -> None:
    """Remove input forms, except one that holds most of the page."""
    threshold = FORM_SHARE * sizes[id(root)]
    for element in root.walk():
        element.children = [
            child
            for child in element.children
            if isinstance(child, str) or child.tag != "form" or sizes[id(child)] > threshold
        ]


def _find_main(root: Element, sizes: dict[int, int]) -> Element:
    threshold = MIN_MARKED_SHARE * sizes[id(root)]
    for candidates in (_main_elements(root), _sole_article(root)):
        largest = max(candidates, key=lambda element: sizes[id(element)], default=None)
        if largest is not None and sizes[id(largest)] > threshold:
            return largest
    return _find_densest_block(root, sizes) or root


def _main_elements(root: Element) -> Iterator[Element]:
    for element in root.walk():
        if element.tag == "main" or element.attributes.get("role", "").lower() == "main":
            yield element


def _sole_article(root: Element) -> list[Element]:
    """Return the only `<article>`; with several, none is the main content."""
    articles = [element for element in root.walk() if element.tag == "article"]
    return articles if len(articles) == 1 else []


def _find_densest_block(root: Element, sizes: dict[int, int]) -> Element | None:
    """Return the block with most of the running text.

    Text counts fully for its own block and half for the block around it.
    """
    scores: dict[int, float] = {}
    blocks: dict[int, Element] = {}
    total = 0.0
    for element, enclosing in _text_elements(root):
        weight = sizes[id(element)] - sum(sizes[id(link)] for link in _links(element))
        total += weight
        for block, share in zip(reversed(enclosing[-2:]), (1.0, 0.5), strict=False):
            blocks[id(block)] = block
            scores[id(block)] = scores.get(id(block), 0.0) + share * weight
    best = max(scores, key=lambda key: scores[key], default=None)
    if best is None or scores[best] < max(MIN_DENSE_SHARE * total, MIN_TEXT_CHARS):
        return None
    return blocks[best]


def _text_elements(root: Element) -> Iterator[tuple[Element, tuple[Element, ...]]]:
    """Yield each element of running text with the blocks around it."""
    pending: list[tuple[Element, tuple[Element, ...]]] = [(root, ())]
    while pending:
        element, enclosing = pending.pop()
        if element.tag in _TEXT_TAGS:
            yield element, enclosing
            continue
        if element.tag in _BLOCK_TAGS:
            enclosing = (*enclosing[-1:], element)
        pending.extend((c, enclosing) for c in reversed(element.children) if isinstance(c, Element))


def _links(element: Element) -> Iterator[Element]:
    """Yield the links in an element: their text is often navigation."""
    pending = [element]
    while pending:
        below = pending.pop()
        if below.tag == "a":
            yield below
        else:
            pending.extend(child for child in below.children if isinstance(child, Element))
