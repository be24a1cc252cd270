"""Where forms are, and how an error shows a place."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dodona.core.errors import SourceLocation
from dodona.lisp import Form, Source, Span, read
from dodona.lisp.forms import children

TEXT = '(tree\n  [:ключ \'x]\n\t{:a "two\nlines"}) ; end\n12'
# What each form covers, and its first and last position.
PLACES = [
    ("(", (1, 1), (4, 9)),
    ("tree", (1, 2), (1, 6)),
    ("[", (2, 3), (2, 13)),
    (":ключ", (2, 4), (2, 9)),
    ("'x", (2, 10), (2, 12)),
    ("x", (2, 11), (2, 12)),
    ("{", (3, 2), (4, 8)),
    (":a", (3, 3), (3, 5)),
    ('"two\nlines"', (3, 6), (4, 7)),
    ("12", (5, 1), (5, 3)),
]


def every(forms: tuple[Form, ...]) -> list[Form]:
    found: list[Form] = []
    work = list(reversed(forms))
    while work:
        found.append(work.pop())
        work.extend(reversed(children(found[-1])))
    return found


def test_every_form_knows_its_place() -> None:
    """A span names the file, and line and column of its first character and after its last."""
    forms = every(read(TEXT, "x.lisp"))
    assert len(forms) == len(PLACES)
    for form, (text, first, last) in zip(forms, PLACES, strict=True):
        span = form.span
        assert TEXT[span.start : span.end].startswith(text)
        assert (span.file, span.line, span.column) == ("x.lisp", *first)
        assert span.source.position(span.end) == last
        assert str(span) == f"x.lisp:{first[0]}:{first[1]}"


ATOMS = st.sampled_from([":a", "a", "1", "-2.5", '"s"', '"two\nlines"', r'"\n"', "nil", "é"])
BETWEEN = st.sampled_from([" ", "\n", "\r\n\t", " ; c\n", " #| c |# ", "\n\n"])


def compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    inside = st.lists(st.tuples(BETWEEN, inner).map("".join), max_size=5)
    pairs = inside.map(lambda values: "".join(f" :k{i}{v}" for i, v in enumerate(values)))
    return (
        inside.map(lambda items: f"({''.join(items)} )")
        | inside.map(lambda items: f"[{''.join(items)}]")
        | pairs.map(lambda text: f"{{{text}\n}}")
        | st.tuples(BETWEEN, inner).map(lambda quoted: f"'{''.join(quoted)}")
    )


TEXTS = st.tuples(BETWEEN, st.recursive(ATOMS, compound, max_leaves=20), BETWEEN).map("".join)


@settings(deadline=None)
@given(TEXTS)
def test_a_span_covers_exactly_its_form(text: str) -> None:
    """What a span covers reads as the same form, and spans come in order, children inside."""
    for form in every(read(text)):
        span = form.span
        assert read(text[span.start : span.end]) == (form,)
        ends = [span.start, *(edge for c in children(form) for edge in c.span[1:]), span.end]
        assert ends == sorted(ends)


EXCERPTS = {
    ("abc", 1): "  1 | abc\n    |  ^",
    ("abc", 3): "  1 | abc\n    |    ^",
    ("", 0): "  1 |\n    | ^",
    ("a\n\nb", 2): "  2 |\n    | ^",
    ("a\r\nb", 0): "  1 | a\n    | ^",
    ("\n" * 9 + "ten", 10): "  10 | ten\n     |  ^",
    # Tabs are kept, so that the caret moves as the text does.
    ("\ta\tb", 3): "  1 | \ta\tb\n    | \t \t^",
    # A wide character takes two columns, a combining one none.
    ("日本x", 2): "  1 | 日本x\n    |     ^",
    ("e\u0301x", 2): "  1 | e\u0301x\n    |  ^",
    # What a terminal would obey is not sent to it.
    ("\x1b[2J\u202ex", 5): "  1 | �[2J�x\n    |      ^",
    # A long line is cut around the caret.
    ("x" * 60 + "!" + "y" * 39, 60): f"  1 | {'x' * 60}!{'y' * 39}\n    | {' ' * 60}^",
    ("x" * 61 + "!" + "y" * 40, 61): f"  1 | …{'x' * 60}!{'y' * 39}…\n    | {' ' * 61}^",
}


@pytest.mark.parametrize(("place", "excerpt"), EXCERPTS.items(), ids=range(len(EXCERPTS)))
def test_excerpt(place: tuple[str, int], excerpt: str) -> None:
    """An excerpt is the line of a place, at most about 100 columns, with a caret below."""
    text, offset = place
    where = Span(Source("x.lisp", text), offset, offset + 1).location()
    assert where.excerpt == excerpt


def test_where() -> None:
    """The place an error carries is the span's first character."""
    (form,) = read("\n  a", "x.lisp")
    assert form.span.location() == SourceLocation("x.lisp", 2, 3, "  2 |   a\n    |   ^")


@settings(deadline=None)
@given(st.text(alphabet="a\n\r日", max_size=30), st.integers(0, 30))
def test_positions_agree_with_counting(text: str, offset: int) -> None:
    """Line and column are what counting newlines gives."""
    offset = min(offset, len(text))
    before = text[:offset]
    expected = before.count("\n") + 1, len(before) - before.rfind("\n")
    assert Source("x", text).position(offset) == expected
