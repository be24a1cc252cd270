"""Patterns of paths."""

from __future__ import annotations

import pytest

from dodona.core.domain.path_patterns import NO_PATTERNS, PathPatterns, find_problem

MATCHES = {
    "Clippings/**": (["Clippings/a.md", "Clippings/b/c.md", "clippings/A.md"], ["Clippings", "a"]),
    "Clippings": (["Clippings", "Clippings/a.md"], ["Clippings2/a.md", "x/Clippings/a.md"]),
    "Clippings/": (["Clippings/a.md"], ["Clippings2/a.md"]),
    "**/web/*.md": (["web/a.md", "x/y/web/a.md"], ["web/x/a.md", "webs/a.md"]),
    "a?[1].md": (["ab[1].md"], ["ab1.md", "a/[1].md"]),
    "a*.md": (["a.md", "abc.md", "a\n.md"], ["b/a.md", "ba.md"]),
    "**": (["a.md", "b/c.md"], []),
    "Ärger/**": (["A\u0308rger/a.md"], ["Arger/a.md"]),
}


@pytest.mark.parametrize("pattern", MATCHES)
def test_a_pattern_matches_notes_and_folders(pattern: str) -> None:
    """And all that is in a folder it matches; case and Unicode encoding do not count."""
    assert find_problem(pattern) == ""
    matching, other = MATCHES[pattern]
    patterns = PathPatterns(["never/x", pattern])
    assert [path for path in (*matching, *other) if patterns.match(path)] == matching
    assert not any(map(NO_PATTERNS.match, matching))


@pytest.mark.parametrize(
    "pattern", ["/a", "~/a", "a\\b", "a//b", "..", "a/./b", "", "a**", "x" * 513]
)
def test_other_patterns_are_rejected(pattern: str) -> None:
    """With the reason."""
    assert find_problem(pattern).startswith("must ")
