"""Links between pages lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]

_LINK = re.compile(r"\]\((?!https?:)(?P<path>[^)#\s]*)(?:#(?P<anchor>[^)\s]+))?\)")
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to headings."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link names a file that exists, and a heading in it."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    for link in _LINK.finditer(text):
        target = (page.parent / link["path"]).resolve() if link["path"] else page
        assert target.exists(), f"{page.name}: {link[0]}"
        if link["anchor"] and target.suffix == ".md":
            assert link["anchor"] in anchors(target), f"{page.name}: {link[0]}"


def test_every_page_is_in_the_index() -> None:
    """docs/README.md links to every page below docs."""
    index = ROOT / "docs" / "README.md"
    text = index.read_text(encoding="utf-8")
    linked = {(index.parent / link["path"]).resolve() for link in _LINK.finditer(text)}
    pages = {page for page in PAGES if ROOT / "docs" in page.parents and page != index}
    assert pages <= linked, sorted(str(page) for page in pages - linked)
