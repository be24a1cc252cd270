"""Forms written as text: that it reads back, and that people like to read it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dodona.lisp import (
    MAX_DEPTH,
    Form,
    Keyword,
    List,
    Literal,
    Map,
    Quote,
    Source,
    Span,
    Symbol,
    Vector,
    pretty,
    read,
    to_text,
)

NOWHERE = Span(Source("nowhere", ""), 0, 0)

CHARACTERS = st.characters(exclude_categories=["Cs"])
NAMES = st.text("abcXYZ019_-+*/<>=!?.éß条िं", min_size=1, max_size=12)
PLAIN_SYMBOLS = NAMES.filter(
    lambda name: name not in {"true", "false", "nil"} and not name.lstrip("+-.")[:1].isdecimal()
)
STRINGS = st.text(CHARACTERS, max_size=20)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
LITERALS = STRINGS | NUMBERS | st.integers(10**300, 10**301) | st.booleans() | st.none()
KEYWORDS = st.builds(Keyword, NAMES, st.just(NOWHERE))
ATOMS = (
    st.builds(Symbol, PLAIN_SYMBOLS, st.just(NOWHERE))
    | KEYWORDS
    | st.builds(Literal, LITERALS, st.just(NOWHERE))
)
KEYS = KEYWORDS | st.builds(Literal, STRINGS | st.integers(), st.just(NOWHERE))


def compound(inner: st.SearchStrategy[Form]) -> st.SearchStrategy[Form]:
    items = st.lists(inner, max_size=6).map(tuple)
    pairs = st.lists(st.tuples(KEYS, inner), max_size=4, unique_by=lambda pair: pair[0]).map(tuple)
    return (
        st.builds(List, items, st.just(NOWHERE))
        | st.builds(Vector, items, st.just(NOWHERE))
        | st.builds(Map, pairs, st.just(NOWHERE))
        | st.builds(Quote, inner, st.just(NOWHERE))
    )


FORMS = st.recursive(ATOMS, compound, max_leaves=25)


@settings(deadline=None)
@given(FORMS)
def test_one_line_reads_back(form: Form) -> None:
    """Reading what to_text wrote gives the form again, and it is one printable line."""
    text = to_text(form)
    assert read(text) == (form,)
    assert text.isprintable()


@settings(deadline=None)
@given(FORMS, st.integers(1, 120))
def test_layout_reads_back(form: Form, width: int) -> None:
    """Reading what pretty wrote gives the form again, at any width."""
    text = pretty(form, width)
    assert read(text) == (form,)
    assert not any(line.endswith(" ") for line in text.split("\n"))


@settings(deadline=None)
@given(FORMS)
def test_layout_breaks_only_what_is_too_long(form: Form) -> None:
    """A form that fits stays on one line, as to_text writes it."""
    text = to_text(form)
    assert pretty(form, len(text)) == text


def test_deepest_form_prints() -> None:
    """Neither printing nor comparing recurses: the deepest form that reads is no problem."""
    for text in ("(" * MAX_DEPTH + ")" * MAX_DEPTH, "[" * MAX_DEPTH + "1" + "]" * MAX_DEPTH):
        (form,) = read(text)
        assert to_text(form) == text
        assert read(pretty(form)) == (form,)
        assert hash(form) == hash(read(text)[0])
        assert "<" in repr(form)


LINES = {
    "( a   :b\n1 )": "(a :b 1)",
    "{ :a [ ] }": "{:a []}",
    "' ( a )": "'(a)",
    "+1 -0 1e3 1e-7 1.50": "1 0 1000.0 1e-07 1.5",
    '"a\n\tb\r"': r'"a\n\tb\r"',
    r'"\u{1b}\u{202e}é\u{e9}"': r'"\u{1B}\u{202E}éé"',
    "true false nil": "true false nil",
}


@pytest.mark.parametrize(("text", "line"), LINES.items())
def test_line(text: str, line: str) -> None:
    """One spelling for each form, whatever it was written as; nothing invisible in it."""
    assert " ".join(to_text(form) for form in read(text)) == line


LAYOUTS = [
    # Names and literals stay beside the head; each keyword starts a line with its value.
    """\
(action drain-notifications
  :fn "oracle.drain_start"
  :timeout 60)""",
    # Keywords stay beside the head when only children follow.
    """\
(parallel :policy :require-all
  (action one :fn "a.one")
  (action two :fn "a.two"))""",
    """\
(repeater
  :max-iterations 30
  :until (blackboard :finished)
  (action step))""",
    # A flag before another keyword is not taken for its value.
    """\
(repeater
  :until-success
  :max-iterations 30
  :until (blackboard :finished))""",
    # A map is one pair per line, and starts beside its keyword.
    """\
(tree "inbox"
  :schema {:query nil
           :messages []
           "other" 1.5}
  (fail))""",
    # A long value of a keyword goes below it.
    """\
(tree "inbox"
  (sequence (action reset))
  :finally
    (sequence
      (action save-what-is-left)
      (action say-good-bye)))""",
    """\
[:one-of-many
 (two-of-many)
 "three of many strings"
 []]""",
    """\
'(one-of-many-names
   (another-one-of-many here)
   (and-a-third-one there))""",
    """\
((one-of-many-names here)
 (and-a-second-one there))""",
    # Closing delimiters count: the last line holds them all.
    """\
(a
  (b
    (c "1234567890123456789012")))""",
]


@pytest.mark.parametrize("text", LAYOUTS)
def test_layout(text: str) -> None:
    """Lines of 34 columns break where people break them."""
    (form,) = read(text)
    assert pretty(form, 34) == text


UNPRINTABLE = [
    Symbol("a b", NOWHERE),
    Symbol("", NOWHERE),
    Symbol("true", NOWHERE),
    Symbol("12", NOWHERE),
    Symbol(":a", NOWHERE),
    Keyword("", NOWHERE),
    Keyword("a:b", NOWHERE),
    Literal(float("inf"), NOWHERE),
    Literal(float("nan"), NOWHERE),
    Literal("\ud800", NOWHERE),
]


@pytest.mark.parametrize("form", UNPRINTABLE, ids=repr)
def test_a_form_without_text_is_refused(form: Form) -> None:
    """A form made by hand that nothing reads as is an error, not a different text."""
    with pytest.raises(ValueError, match="cannot "):
        to_text(form)
    with pytest.raises(ValueError, match="cannot "):
        pretty(form)
