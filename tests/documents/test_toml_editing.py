"""TOML that is changed in place: what was asked for is there, and nothing else has moved."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dodona.core.errors import ConfigError
from dodona.documents import KeyPath
from dodona.documents.toml_editing import edit_toml, format_toml_key, format_toml_value

EDITS: dict[str, tuple[str, dict[KeyPath, Any], str]] = {
    "a value, beside its comment": (
        "[a]\nx  =  1   # why\ny = 2\n",
        {("a", "x"): "one"},
        '[a]\nx  =  "one"   # why\ny = 2\n',
    ),
    "a text over several lines": (
        '[a]\nx = """\n[b]\ny = 1\n""" # why\nz = 1\n',
        {("a", "x"): 2},
        "[a]\nx = 2 # why\nz = 1\n",
    ),
    "a new key, at the end of its section": (
        "[a]\nx = 1\n\n# about b\n[b]\ny = 1\n",
        {("a", "z"): 3},
        "[a]\nx = 1\nz = 3\n\n# about b\n[b]\ny = 1\n",
    ),
    "a new key in a section without any": (
        "[a]\n[b]\n",
        {("a", "z"): 3},
        "[a]\nz = 3\n[b]\n",
    ),
    "a new key beside keys with points": (
        "a.x = 1 # why\n\n[b]\ny = 1\n",
        {("a", "z"): 3},
        "a.x = 1 # why\na.z = 3\n\n[b]\ny = 1\n",
    ),
    "a new key beside keys with points in a section": (
        "[a]\nb.x = 1\nc = 2\n",
        {("a", "b", "y"): 3},
        "[a]\nb.x = 1\nb.y = 3\nc = 2\n",
    ),
    "a new section": (
        "# top\n[a]\nx = 1\n# end\n",
        {("b", "y"): 1},
        "# top\n[a]\nx = 1\n# end\n\n[b]\ny = 1\n",
    ),
    "a new section below another": (
        "[a]\nx = 1\n\n# about c\n[c]\ny = 1\n",
        {("a", "b", "z"): 1},
        "[a]\nx = 1\n\n[a.b]\nz = 1\n\n# about c\n[c]\ny = 1\n",
    ),
    "a new section below keys with points": (
        "a.x = 1\nc.y = 1\n",
        {("a", "b", "z"): 1},
        "a.x = 1\nc.y = 1\n\n[a.b]\nz = 1\n",
    ),
    "a section that was only meant": (
        "# about b\n[a.b]\nx = 1\n",
        {("a", "y"): 2},
        "[a]\ny = 2\n\n# about b\n[a.b]\nx = 1\n",
    ),
    "a section out of order": (
        "[a.b]\nx = 1\n[c]\n[a]\ny = 1\n",
        {("a", "z"): 2},
        "[a.b]\nx = 1\n[c]\n[a]\ny = 1\nz = 2\n",
    ),
    "an element": (
        "[[a]]\nx = 1\n\n# the second\n[[a]]\nx = 2\n",
        {("a", 0, "y"): 5, ("a", 1, "x"): 6},
        "[[a]]\nx = 1\ny = 5\n\n# the second\n[[a]]\nx = 6\n",
    ),
    "one element more": (
        "[[a]]\nx = 1\n\n# about b\n[b]\n",
        {("a", 1): {"x": 2, "y": "z"}},
        '[[a]]\nx = 1\n\n[[a]]\nx = 2\ny = "z"\n\n# about b\n[b]\n',
    ),
    "the first element": ("", {("a", 0, "x"): 1}, "[[a]]\nx = 1\n"),
    "an element less": (
        "[[a]]\nx = 1\n[[a]]\nx = 2\n[[a]]\nx = 3\n",
        {("a", 1): None},
        "[[a]]\nx = 1\n[[a]]\nx = 3\n",
    ),
    "a part of an inline table": (
        "a = { x = 1, b = { y = 2 } } # why\n",
        {("a", "b", "z"): 3, ("a", "x"): None},
        "a = { b = { y = 2, z = 3 } } # why\n",
    ),
    "a part of an array": (
        "a = [ {x = 1}, {x = 2} ]\n",
        {("a", 1, "x"): 3, ("a", 2): {"x": 4}},
        "a = [{ x = 1 }, { x = 3 }, { x = 4 }]\n",
    ),
    "a key less": (
        "[a]\n# x\nx = [ 1, # one\n  2 ]\ny = 2\n",
        {("a", "x"): None},
        "[a]\n# x\ny = 2\n",
    ),
    "a section less": (
        "[a]\nx = 1\n# in a\ny = 2\n[c]\nz = 1\n[a.b]\nw = 1\n",
        {("a",): None},
        "[c]\nz = 1\n",
    ),
    "nothing less": ("[a]\nx = 1\n", {("b", "y"): None, ("a", "z", "w"): None}, "[a]\nx = 1\n"),
    "a name with a point": (
        '[prices."gpt-4.1"]\ninput = 1\n',
        {("prices", "gpt-4.1", "output"): 2, ("prices", "a b", "input"): 1.5},
        '[prices."gpt-4.1"]\ninput = 1\noutput = 2\n\n[prices."a b"]\ninput = 1.5\n',
    ),
    "a text without an end of line": ("[a]\nx = 1", {("a", "y"): 2}, "[a]\nx = 1\ny = 2\n"),
    "ends of lines of another system": (
        "[a]\r\nx = 1\r\n",
        {("a", "y"): 2, ("b", "z"): 1},
        "[a]\r\nx = 1\r\ny = 2\r\n\r\n[b]\r\nz = 1\r\n",
    ),
    "a key of no section": ("[a]\nx = 1\n", {("y",): 2}, "y = 2\n[a]\nx = 1\n"),
    "another key of no section": ("z = 1\n[a]\n", {("y",): 2}, "z = 1\ny = 2\n[a]\n"),
}


@pytest.mark.parametrize(("text", "changes", "expected"), EDITS.values(), ids=EDITS.keys())
def test_an_edit(text: str, changes: dict[KeyPath, Any], expected: str) -> None:
    """Comments, order and spelling of all else stay."""
    assert edit_toml(text, changes) == expected


REFUSED: dict[str, tuple[str, dict[KeyPath, Any], str]] = {
    "a section": ("[a]\nx = 1\n", {("a",): 2}, "a is a section. Name one of its keys."),
    "below a value": (
        "a = 1\n",
        {("a", "x"): 2},
        "a.x cannot be set: a is not a section. Edit the file by hand.",
    ),
    "comments in an array": (
        "a = [ {x = 1}, # one\n]\n",
        {("a", 0, "x"): 2},
        "a contains comments that would be lost. Edit the file by hand.",
    ),
    "too far on": (
        "[[a]]\n",
        {("a", 3): {}},
        "index 3 is out of range (the length is 1). Indexes start at 0.",
    ),
    "a name of an element": (
        "[[a]]\n",
        {("a", "x"): 1},
        "x cannot be set there. Edit the file by hand.",
    ),
}


@pytest.mark.parametrize(("text", "changes", "expected"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_done_is_told(text: str, changes: dict[KeyPath, Any], expected: str) -> None:
    """Rather than done in another way than it was asked for."""
    with pytest.raises(ConfigError) as caught:
        edit_toml(text, changes)
    assert str(caught.value) == expected


# -- whatever the text -------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c d", "é", '"', "x.y"])
SCALARS = (
    st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=5,
)
COMMENTS = st.sampled_from(["", " # why", "\t# x = 1", "\n# [a]", "\n\n"])


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Sections, keys and comments in any order; many are no TOML."""
    lines: list[str] = []
    for _ in range(draw(st.integers(0, 6))):
        names = draw(st.lists(NAMES, min_size=1, max_size=3))
        key = format_toml_key(tuple(names))
        kind = draw(st.sampled_from(["pair", "pair", "pair", "table", "array"]))
        text = {"table": f"[{key}]", "array": f"[[{key}]]"}.get(kind)
        lines.append((text or f"{key} = {format_toml_value(draw(VALUES))}") + draw(COMMENTS))
    return draw(st.sampled_from(["\n", "\r\n"])).join(lines) + draw(st.sampled_from(["", "\n"]))


PATHS = st.lists(NAMES | st.integers(0, 1), min_size=1, max_size=4).map(tuple)


@settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow], deadline=None)
@given(text=documents(), path=PATHS, value=st.none() | VALUES)
def test_an_edit_does_what_was_asked_or_nothing(text: str, path: KeyPath, value: Any) -> None:
    """What is new is there and all else reads as before, or the edit is refused."""
    assume(isinstance(path[0], str))
    try:
        before = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        assume(False)
    try:
        after = tomllib.loads(edit_toml(text, {path: value}))
    except ConfigError:
        return
    if value is not None:
        found: Any = after
        for name in path:
            found = found[name]
        assert json.dumps(found) == json.dumps(value)
    for name in before:
        if name != path[0]:
            assert json.dumps(after[name]) == json.dumps(before[name])


@given(VALUES)
def test_what_is_written_reads_as_it_was(value: Any) -> None:
    """Of whatever type, with whatever characters."""
    assert json.dumps(tomllib.loads(f"x = {format_toml_value(value)}")["x"]) == json.dumps(value)
