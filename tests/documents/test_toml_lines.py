"""The index of lines: whatever tomllib reads, it has located."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dodona.documents.toml_lines import MAX_DEPTH, KeyPath, locate_keys

TEXT = '''\
# a = 1
a = 1
"b c".'d.e' = "x" # y = 2
f.g = 1
f . h = 2

[table]
text = """
a = 3
[no]
\\""""
lines = [ 1, # ], k = 1
  { k = 2, l = [3, {m=1}] },
  "]", '[', 1979-05-27 07:32:00,
]
when = 1979-05-27 07:32:00
literal = \'\'\'
x = 1\'\'\'
"caf\\u00e9" = 1
nothing = {}

[ x . y ] # [z]
q = '''
EXPECTED: dict[KeyPath, int] = {
    ("a",): 2,
    ("b c",): 3,
    ("b c", "d.e"): 3,
    ("f",): 4,
    ("f", "g"): 4,
    ("f", "h"): 5,
    ("table",): 7,
    ("table", "text"): 8,
    ("table", "lines"): 12,
    ("table", "lines", 0): 12,
    ("table", "lines", 1): 13,
    ("table", "lines", 1, "k"): 13,
    ("table", "lines", 1, "l"): 13,
    ("table", "lines", 1, "l", 0): 13,
    ("table", "lines", 1, "l", 1): 13,
    ("table", "lines", 1, "l", 1, "m"): 13,
    ("table", "lines", 2): 14,
    ("table", "lines", 3): 14,
    ("table", "lines", 4): 14,
    ("table", "when"): 16,
    ("table", "literal"): 17,
    ("table", "café"): 19,
    ("table", "nothing"): 20,
    ("x",): 22,
    ("x", "y"): 22,
    ("x", "y", "q"): 23,
}


def test_every_way_to_write_a_key() -> None:
    """Dotted, quoted, escaped, inline, after strings and arrays that hold what looks like keys."""
    text = f"{TEXT}1\n"
    tomllib.loads(text)
    assert dict(locate_keys(text)) == EXPECTED


def test_arrays_of_tables_have_numbers() -> None:
    """A table below one belongs to its newest element."""
    text = "[[a]]\nn = 1\n[a.b]\nq = 1\n[[a]]\n[a.b]\nq = 2\n[[a.c]]\n[[a.c]]\nz = 1\n"
    tomllib.loads(text)
    assert dict(locate_keys(text)) == {
        ("a",): 1,
        ("a", 0): 1,
        ("a", 0, "n"): 2,
        ("a", 0, "b"): 3,
        ("a", 0, "b", "q"): 4,
        ("a", 1): 5,
        ("a", 1, "b"): 6,
        ("a", 1, "b", "q"): 7,
        ("a", 1, "c"): 8,
        ("a", 1, "c", 0): 8,
        ("a", 1, "c", 1): 9,
        ("a", 1, "c", 1, "z"): 10,
    }


def test_lines_end_in_two_ways() -> None:
    """CRLF counts as one."""
    assert dict(locate_keys("a = 1\r\n\r\nb = [\r\n1]\r\n")) == {
        ("a",): 1,
        ("b",): 3,
        ("b", 0): 4,
    }


NO_TOML = ["a", "a = ", "[", "[a", "a = [1, 2", "a = {b", "\x00", "= 1", "a = '''", '"\\q" = 1']


@pytest.mark.parametrize("text", NO_TOML)
def test_what_is_no_toml_is_located_as_far_as_it_goes(text: str) -> None:
    """The keys before it are there; telling the mistake is tomllib's part."""
    assert locate_keys(f"before = 1\n{text}")["before",] == 1


HOSTILE = {
    "keys in keys": "a." * 200_000 + "a = 1",
    "quotes": 'a = """' + '"' * 3 + "x" * 500_000,
    "blanks": "a =" + " " * 500_000,
    "comments": "#" * 500_000,
    "lines": "\n" * 500_000,
    "a long string": "a = '" + "x" * 500_000,
    "keys": "\n".join(f"k{n} = 1" for n in range(50_000)),
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_costs_no_more_than_its_length(text: str) -> None:
    """Were it quadratic, this would time out; a key of many parts is cut past what is allowed."""
    found = locate_keys(text)
    assert max(map(len, found), default=0) <= MAX_DEPTH + 1


# -- against tomllib -------------------------------------------------------------------------

names = st.text("ab_-1", min_size=1, max_size=3) | st.text("a.é \"'\\#=[]", min_size=1, max_size=4)
scalars = (
    st.integers(-5, 5).map(str)
    | st.sampled_from(["true", "1.5", "1979-05-27", "1979-05-27 07:32:00", "'''\n[x]\na = 1\n'''"])
    | st.text("a\"'=[]{}#,\n", max_size=6).map(json.dumps)
    | st.text("a'=[]{}#,\n\" ", max_size=6).map(lambda t: '"""' + t.replace('"', '\\"') + '"""')
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: "[" + ", # ]\n".join(items) + "\n]")
        | st.dictionaries(names, inner, max_size=3).map(
            lambda pairs: "{" + ", ".join(f"{key(k)} = {v}" for k, v in pairs.items()) + "}"
        )
    ),
    max_leaves=4,
)


def key(name: str) -> str:
    is_bare = name.replace("-", "").replace("_", "").isalnum() and name.isascii()
    return name if is_bare else json.dumps(name, ensure_ascii=False)


statements = st.one_of(
    st.tuples(st.lists(names, min_size=1, max_size=3), values).map(
        lambda pair: f"{' . '.join(map(key, pair[0]))} = {pair[1]}"
    ),
    st.lists(names, min_size=1, max_size=3).map(lambda path: f"[{'.'.join(map(key, path))}]"),
    st.lists(names, min_size=1, max_size=2).map(lambda path: f"[[ {'.'.join(map(key, path))} ]]"),
    st.sampled_from(["", "# a = 1", "   "]),
)


def valid(lines: list[str]) -> str:
    """The statements that make a document together, one below the other."""
    text = ""
    for line in lines:
        longer = f"{text}{line}\n"
        try:
            tomllib.loads(longer)
        except tomllib.TOMLDecodeError:
            continue
        text = longer
    return text


def paths(value: Any, above: KeyPath = ()) -> Iterator[KeyPath]:
    below = value.items() if isinstance(value, dict) else enumerate(value)
    for name, inner in below:
        yield (*above, name)
        if isinstance(inner, dict | list):
            yield from paths(inner, (*above, name))


@given(st.lists(statements, max_size=8).map(valid))
def test_every_key_is_located_on_a_line_that_names_it(text: str) -> None:
    """And nothing else is."""
    found = locate_keys(text)
    expected = set(paths(tomllib.loads(text)))
    assert set(found) == expected
    lines = text.split("\n")
    for path in expected:
        name = path[-1]
        if isinstance(name, str):
            assert key(name) in lines[found[path] - 1]


@given(st.text("a.=[]{}\"'\\\n#, 1", max_size=60))
def test_any_text_is_survived(text: str) -> None:
    """It never raises, and where tomllib reads the text, both agree."""
    found = locate_keys(text)
    try:
        expected = set(paths(tomllib.loads(text)))
    except tomllib.TOMLDecodeError:
        return
    assert set(found) == expected
