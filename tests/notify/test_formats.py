"""Rows of events: the shorter form for a model, lines for people."""

from __future__ import annotations

import json
from typing import Any

import pytest
import toon_format
from hypothesis import given
from hypothesis import strategies as st

from dodona.notify.formats import format_for_model, format_for_people

UNIFORM = [{"path": f"notes/{number}.md", "line": number} for number in range(3)]


def test_uniform_rows_are_written_as_toon() -> None:
    """Their names stand there once."""
    assert format_for_model(UNIFORM) == (
        "[3]{path,line}:\n  notes/0.md,0\n  notes/1.md,1\n  notes/2.md,2"
    )


@pytest.mark.parametrize(
    "rows",
    [
        [{"a": {"b": {"c": [1, 2, {"d": 3}]}}}, {"x": [[[]]]}],
        [{}],
        [],
        [{"nested": [{"deep": {"deeper": [1, [2, [3]]]}}]}],
    ],
)
def test_json_is_written_where_it_is_shorter(rows: list[dict[str, Any]]) -> None:
    """Without a blank that it can do without."""
    compact = json.dumps(rows, separators=(",", ":"))
    assert format_for_model(rows) == min(toon_format.encode(rows), compact, key=len)
    assert len(format_for_model(rows)) <= len(compact)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text(min_size=1, max_size=8), VALUES, max_size=4), max_size=5))
@pytest.mark.slow
def test_whatever_the_rows_hold_the_shorter_form_wins(rows: list[dict[str, Any]]) -> None:
    """And nothing makes it fail."""
    compact = json.dumps(rows, ensure_ascii=False, separators=(",", ":"))
    assert len(format_for_model(rows)) <= len(compact)


def test_values_that_are_no_json_are_told_as_text() -> None:
    """A path, for one."""

    class Odd:
        def __str__(self) -> str:
            return "odd"

    assert "odd" in format_for_model([{"a": Odd()}])


def test_people_read_a_line_for_each() -> None:
    """Of one value only the value; what has several lines becomes one."""
    assert format_for_people([{"path": "a.md"}, {"path": "b.md"}]) == "- a.md\n- b.md"
    rows = [{"tool": "x", "ms": 3, "ok": None}, {"tool": "y", "said": "no\n  such"}]
    assert format_for_people(rows) == "- tool: x, ms: 3, ok: null\n- tool: y, said: no such"
