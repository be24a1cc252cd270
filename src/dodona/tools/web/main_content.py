"""What a page is about: its title, and its main part as text.

The main part is what the page marks as such, else the block with most running text in it; the whole
page when no part of it stands out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dodona.core.errors import DodonaError
from dodona.net.urls import WebAddress
from dodona.tools.web.markdown import is_seen, markdown
from dodona.tools.web.markup import Element, read_html

LONGEST_TITLE: Final = 200
MARKED_SHARE: Final = 0.2  # of all text that a marked part needs to be taken for the main one
DENSE_SHARE: Final = 0.7  # of all running text that a block needs
LEAST_RUNNING: Final = 250  # characters; of a page with fewer nothing is left out
FORM_SHARE: Final = 0.5  # of all text: some servers put whole pages into a form

_RUNNING: Final = frozenset({"blockquote", "dd", "li", "p", "pre"})
_BLOCKS: Final = frozenset({"article", "body", "div", "section", "td"})


@dataclass(frozen=True, slots=True)
class Readable:
    title: str
    text: str


def readable(html: str, address: WebAddress) -> Readable:
    """A page at this address as a person would take it in."""
    root = read_html(html)
    title = _title(root)
    base = _base(root, address)
    pruned = _pruned(root)
    sizes = _sizes(pruned)
    _without_forms(pruned, sizes)
    return Readable(title, markdown(_main(pruned, sizes), base))


def _title(root: Element) -> str:
    """What the page calls itself, else what others shall call it, else its first heading."""
    firsts: dict[str, str] = {}
    for element in root.walk():
        if element.tag in {"title", "h1"} and element.tag not in firsts:
            firsts[element.tag] = element.text()
        elif element.tag == "meta" and element.attributes.get("property") == "og:title":
            firsts.setdefault("meta", element.attributes.get("content", ""))
    texts = (" ".join(firsts.get(kind, "").split()) for kind in ("title", "meta", "h1"))
    return next(filter(None, texts), "")[:LONGEST_TITLE]


def _base(root: Element, address: WebAddress) -> WebAddress:
    hrefs = (
        e.attributes["href"] for e in root.walk() if e.tag == "base" and "href" in e.attributes
    )
    try:
        return address.join(next(hrefs, ""))
    except DodonaError:
        return address


def _pruned(element: Element) -> Element:
    """The element without what nobody sees. A tree is shallow enough to go down into."""
    children = [
        child if isinstance(child, str) else _pruned(child)
        for child in element.children
        if isinstance(child, str) or is_seen(child)
    ]
    return Element(element.tag, element.attributes, children)


def _sizes(root: Element) -> dict[int, int]:
    """How many characters each element holds, by its id."""
    sizes: dict[int, int] = {}
    for element in reversed(list(root.walk())):
        sizes[id(element)] = sum(
            len(child.strip()) if isinstance(child, str) else sizes[id(child)]
            for child in element.children
        )
    return sizes


def _without_forms(root: Element, sizes: dict[int, int]) -> None:
    """Take out forms to fill in, but not one that is the page."""
    most = FORM_SHARE * sizes[id(root)]
    for element in root.walk():
        element.children = [
            child
            for child in element.children
            if isinstance(child, str) or child.tag != "form" or sizes[id(child)] > most
        ]


def _main(root: Element, sizes: dict[int, int]) -> Element:
    least = MARKED_SHARE * sizes[id(root)]
    for marked in (_mains(root), _articles(root)):
        found = max(marked, key=lambda element: sizes[id(element)], default=None)
        if found is not None and sizes[id(found)] > least:
            return found
    return _densest(root, sizes) or root


def _mains(root: Element) -> Iterator[Element]:
    for element in root.walk():
        if element.tag == "main" or element.attributes.get("role", "").lower() == "main":
            yield element


def _articles(root: Element) -> list[Element]:
    """The article of a page; a page of several has no one main part."""
    found = [element for element in root.walk() if element.tag == "article"]
    return found if len(found) == 1 else []


def _densest(root: Element, sizes: dict[int, int]) -> Element | None:
    """The block in which most of the running text stands.

    Text counts for the block it is in, and half for the one around that.
    """
    scores: dict[int, float] = {}
    blocks: dict[int, Element] = {}
    total = 0.0
    for element, around in _running(root):
        weight = sizes[id(element)] - sum(sizes[id(link)] for link in _links(element))
        total += weight
        for block, share in zip(reversed(around[-2:]), (1.0, 0.5), strict=False):
            blocks[id(block)] = block
            scores[id(block)] = scores.get(id(block), 0.0) + share * weight
    best = max(scores, key=lambda key: scores[key], default=None)
    if best is None or scores[best] < max(DENSE_SHARE * total, LEAST_RUNNING):
        return None
    return blocks[best]


def _running(root: Element) -> Iterator[tuple[Element, tuple[Element, ...]]]:
    """Each piece of running text, with the blocks around it."""
    pending: list[tuple[Element, tuple[Element, ...]]] = [(root, ())]
    while pending:
        element, around = pending.pop()
        if element.tag in _RUNNING:
            yield element, around
            continue
        if element.tag in _BLOCKS:
            around = (*around[-1:], element)
        pending.extend((c, around) for c in reversed(element.children) if isinstance(c, Element))


def _links(element: Element) -> Iterator[Element]:
    """The links in it: a menu is nothing else."""
    pending = [element]
    while pending:
        below = pending.pop()
        if below.tag == "a":
            yield below
        else:
            pending.extend(child for child in below.children if isinstance(child, Element))
