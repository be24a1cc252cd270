"""Patterns of events: a type, what is below a prefix, one name between others."""

from __future__ import annotations

import pytest

from dodona.core.events import is_pattern, matches


@pytest.mark.parametrize(
    ("pattern", "fitting", "others"),
    [
        ("tool.call", ["tool.call"], ["tool", "tool.call.x", "tool.calls"]),
        ("tool.*", ["tool.a", "tool.a.b"], ["tool", "tools.a", "a.tool.b"]),
        ("budget.*.warning", ["budget.token.warning"], ["budget.warning", "budget.a.b.warning"]),
        ("a.*.c.*", ["a.b.c.d", "a.b.c.d.e"], ["a.b.c", "a.b.d.c"]),
        ("*", ["tool", "tool.a.b"], []),
    ],
)
def test_what_fits(pattern: str, fitting: list[str], others: list[str]) -> None:
    """A `*` is one name, and at the end all that is below."""
    assert is_pattern(pattern)
    assert [each for each in fitting + others if matches((pattern,), each)] == fitting


@pytest.mark.parametrize("text", ["", "tool*", "*.call", "a.*b.c", "a..b", ".a", "a.", "a b", "**"])
def test_what_is_none(text: str) -> None:
    """It would fit nothing, or more than is meant."""
    assert not is_pattern(text)
