"""What texts read as, and what an author is told about those that do not read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dodona.core.errors import ReadError, UnexpectedEnd, as_text
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
    read,
    read_file,
)

NOWHERE = Span(Source("nowhere", ""), 0, 0)


def s(name: str) -> Symbol:
    return Symbol(name, NOWHERE)


def k(name: str) -> Keyword:
    return Keyword(name, NOWHERE)


def lit(value: Any) -> Literal:
    return Literal(value, NOWHERE)


def lst(*items: Form) -> List:
    return List(items, NOWHERE)


def vec(*items: Form) -> Vector:
    return Vector(items, NOWHERE)


def mapping(*pairs: tuple[Form, Form]) -> Map:
    return Map(pairs, NOWHERE)


def quote(form: Form) -> Quote:
    return Quote(form, NOWHERE)


def failure(text: str | bytes) -> ReadError:
    with pytest.raises(ReadError) as caught:
        read(text, "inbox.lisp")
    return caught.value


READS: dict[str, tuple[Form, ...]] = {
    "": (),
    " \t\r\n": (),
    "; only a comment": (),
    "#| a block |#": (),
    "#| outer #| inner |# outer again |# a": (s("a"),),
    "a ; comment\nb": (s("a"), s("b")),
    "a;b": (s("a"),),
    '"; #| not comments |#"': (lit("; #| not comments |#"),),
    "()": (lst(),),
    "[]": (vec(),),
    "{}": (mapping(),),
    "(a (b) [c])": (lst(s("a"), lst(s("b")), vec(s("c"))),),
    "(a)(b)": (lst(s("a")), lst(s("b"))),
    "{:a 1 :b [2]}": (mapping((k("a"), lit(1)), (k("b"), vec(lit(2)))),),
    '{"a" 1 2 b :a c}': (mapping((lit("a"), lit(1)), (lit(2), s("b")), (k("a"), s("c"))),),
    ":fn :user_id :_item :stream-to :2nd :a.b": (
        k("fn"),
        k("user_id"),
        k("_item"),
        k("stream-to"),
        k("2nd"),
        k("a.b"),
    ),
    "has-tool-calls? reset! a.b _x été 条件 हिन्दी": tuple(
        map(s, ["has-tool-calls?", "reset!", "a.b", "_x", "été", "条件", "हिन्दी"])
    ),
    "+ - * / < <= > >= = != ... -a +a": tuple(
        map(s, ["+", "-", "*", "/", "<", "<=", ">", ">=", "=", "!=", "...", "-a", "+a"])
    ),
    "true false nil": (lit(True), lit(False), lit(None)),
    "true? nils": (s("true?"), s("nils")),
    "0 -1 +1 007 42": (lit(0), lit(-1), lit(1), lit(7), lit(42)),
    "0.5 -0.25 1e-3 1E3 2.5e+2": (lit(0.5), lit(-0.25), lit(0.001), lit(1000.0), lit(250.0)),
    "9" * 4_000: (lit(int("9" * 4_000)),),
    "'a '(b) ''c ' d": (quote(s("a")), quote(lst(s("b"))), quote(quote(s("c"))), quote(s("d"))),
    "'; comment\na": (quote(s("a")),),
    '""': (lit(""),),
    r'"\n\t\r\"\\" "\u{41}\u{1F333}"': (lit('\n\t\r"\\'), lit("A🌳")),
    '"two\nlines\tand a tab"': (lit("two\nlines\tand a tab"),),
    '"a\r\nb"': (lit("a\r\nb"),),
    '"“日本”"': (lit("“日本”"),),
    '"a"b"c"': (lit("a"), s("b"), lit("c")),
    "\ufeffa": (s("a"),),
    "a\r\nb": (s("a"), s("b")),
}


@pytest.mark.parametrize(("text", "forms"), READS.items(), ids=[t[:30] for t in READS])
def test_reads_as(text: str, forms: tuple[Form, ...]) -> None:
    """A text reads as exactly these forms, and its UTF-8 bytes as the same."""
    assert read(text) == forms
    assert read(text.encode()) == forms


DIFFER = ["1", "1.0", "true", '"1"', ":a", "a", '"a"', "(a)", "[a]", "'a", "(a a)", "((a) a)"]
DIFFER += ["((a a))", "{:a 1}", "{:a 2}", "{:a 1 :b 2}", "{:b 2 :a 1}", "nil", "false", "0", "()"]


def test_equality_looks_at_kind_and_content() -> None:
    """Forms are equal, and hash equal, if and only if kind, type and content agree."""
    forms = [read(text)[0] for text in DIFFER]
    again = [read(f"\n  {text}")[0] for text in DIFFER]
    for index, form in enumerate(forms):
        assert [form == other for other in again] == [i == index for i in range(len(again))]
        assert hash(form) == hash(again[index])
    assert forms[0] != "1"
    assert len({*forms, *again}) == len(DIFFER)


def test_forms_do_not_change() -> None:
    """A form cannot be given another content."""
    (form,) = read("a")
    with pytest.raises(AttributeError):
        form.name = "b"  # type: ignore[misc,union-attr]


def test_repr_says_what_and_where() -> None:
    """What a failing test prints of a form is short, and leads to its place."""
    (form,) = read("(a b)", "x.lisp")
    assert repr(form) == "<List 2 at x.lisp:1:1>"
    assert isinstance(form, List)
    assert repr(form.items[1]) == "<Symbol 'b' at x.lisp:1:4>"


ENDS_TOO_EARLY = {
    "(tree\n\n  (action greet": """\
inbox.lisp:3:3: this '(' is never closed. Add ')' at the end of the form.
  3 |   (action greet
    |   ^""",
    "(a [b": """\
inbox.lisp:1:4: this '[' is never closed. Add ']' at the end of the form.
  1 | (a [b
    |    ^""",
    "{:a (b)": """\
inbox.lisp:1:1: this '{' is never closed. Add '}' at the end of the form.
  1 | {:a (b)
    | ^""",
    '(a "b)\nc)': """\
inbox.lisp:1:4: this string is never closed. Add '"' to it.
  1 | (a "b)
    |    ^""",
    '"a\\': """\
inbox.lisp:1:1: this string is never closed. Add '"' to it.
  1 | "a\\
    | ^""",
    '"a\\u{1F': """\
inbox.lisp:1:1: this string is never closed. Add '"' to it.
  1 | "a\\u{1F
    | ^""",
    "a #| b": """\
inbox.lisp:1:3: this comment is never closed. Add '|#' to it.
  1 | a #| b
    |   ^""",
    "#| a #| b": """\
inbox.lisp:1:1: this comment is never closed. Comments nest: add '|#' 2 times.
  1 | #| a #| b
    | ^""",
    "(a '": """\
inbox.lisp:1:4: this ' has nothing to quote. Put a form right after it, or remove it.
  1 | (a '
    |    ^""",
}


@pytest.mark.parametrize(("text", "message"), ENDS_TOO_EARLY.items())
def test_ends_too_early(text: str, message: str) -> None:
    """A text that stops in the middle of something names the innermost thing left open."""
    error = failure(text)
    assert isinstance(error, UnexpectedEnd)
    assert as_text(error) == message


GAPS = {
    # A new tree begins at the margin.
    '(tree "a"\n  (fail)\n\n(tree "b"\n  (succeed))\n': """\
inbox.lisp:1:1: this '(' is never closed. Probably ')' is missing before line 4: by its \
indentation that is not inside the form on line 1.
  1 | (tree "a"
    | ^""",
    # The gap is deep inside what looks complete.
    '(tree "a"\n  (sequence\n    (action x\n    (action y))\n  (fail))\n': """\
inbox.lisp:1:1: this '(' is never closed. Probably ')' is missing before line 4: by its \
indentation that is not inside the form on line 3.
  1 | (tree "a"
    | ^""",
    '(tree "a"\n  :schema {\n    :a 1\n  (fail))\n': """\
inbox.lisp:4:9: this ')' cannot close the '{' at inbox.lisp:2:11. Close that with '}' first.
  4 |   (fail))
    |         ^""",
    '(tree "a"\n  :schema [\n    :a 1\n  (fail)\n': """\
inbox.lisp:2:11: this '[' is never closed. Probably ']' is missing before line 4: by its \
indentation that is not inside the form on line 2.
  2 |   :schema [
    |           ^""",
    # Without indentation nothing can be said.
    '(tree "a"\n(sequence\n(fail)\n(succeed))\n': """\
inbox.lisp:1:1: this '(' is never closed. Add ')' at the end of the form.
  1 | (tree "a"
    | ^""",
    '(tree "a"\n  (fail)))\n': """\
inbox.lisp:2:10: this ')' closes nothing: nothing is open here. Remove it.
  2 |   (fail)))
    |          ^""",
    '(tree "a"\n  (fail))\n  (succeed))\n': """\
inbox.lisp:3:12: this ')' closes nothing: nothing is open here. Remove it. Or there is one too \
many before line 3.
  3 |   (succeed))
    |            ^""",
}


@pytest.mark.parametrize(("text", "message"), GAPS.items())
def test_indentation_tells_where_a_delimiter_belongs(text: str, message: str) -> None:
    """An unbalanced text points to the line whose indentation contradicts its delimiters."""
    assert as_text(failure(text)) == message


MISTAKES: dict[str | bytes, str] = {
    "(a]": """\
inbox.lisp:1:3: this ']' cannot close the '(' at inbox.lisp:1:1. Close that with ')' first.
  1 | (a]
    |   ^""",
    ")": """\
inbox.lisp:1:1: this ')' closes nothing: nothing is open here. Remove it.
  1 | )
    | ^""",
    "(a ')": """\
inbox.lisp:1:4: this ' has nothing to quote. Put a form right after it, or remove it.
  1 | (a ')
    |    ^""",
    "{:a 1 :b}": """\
inbox.lisp:1:7: this last key of the map has no value. A map consists of key-value pairs.
  1 | {:a 1 :b}
    |       ^""",
    "{:a 1\n :a 2}": """\
inbox.lisp:2:2: the key :a is already in the map, at inbox.lisp:1:2. Remove one of them.
  2 |  :a 2}
    |  ^""",
    "{7 1 07 2}": """\
inbox.lisp:1:6: the key 7 is already in the map, at inbox.lisp:1:2. Remove one of them.
  1 | {7 1 07 2}
    |      ^""",
    "{a 1}": """\
inbox.lisp:1:2: this cannot be a map key. Keys are keywords, strings or whole numbers.
  1 | {a 1}
    |  ^""",
    "{true 1}": """\
inbox.lisp:1:2: this cannot be a map key. Keys are keywords, strings or whole numbers.
  1 | {true 1}
    |  ^""",
    "{1.5 1}": """\
inbox.lisp:1:2: this cannot be a map key. Keys are keywords, strings or whole numbers.
  1 | {1.5 1}
    |  ^""",
    "(wait 12abc)": """\
inbox.lisp:1:7: '12abc' is not a number. Numbers look like 42, -7, 0.5 or 1e-3; a name cannot \
start with a digit.
  1 | (wait 12abc)
    |       ^""",
    "1.2.3": """\
inbox.lisp:1:1: '1.2.3' is not a number. Numbers look like 42, -7, 0.5 or 1e-3; a name cannot \
start with a digit.
  1 | 1.2.3
    | ^""",
    "-.5": """\
inbox.lisp:1:1: '-.5' is not a number. Numbers look like 42, -7, 0.5 or 1e-3; a name cannot \
start with a digit.
  1 | -.5
    | ^""",
    "１２": """\
inbox.lisp:1:1: '１２' is not a number. Numbers look like 42, -7, 0.5 or 1e-3; a name cannot \
start with a digit.
  1 | １２
    | ^""",
    "-1e999": """\
inbox.lisp:1:1: the number -1e999 is too large for a float. The largest is about 1.8e308.
  1 | -1e999
    | ^""",
    "(a, b)": """\
inbox.lisp:1:3: ',' (U+002C COMMA) has no meaning here. Separate forms with spaces.
  1 | (a, b)
    |   ^""",
    "`a": """\
inbox.lisp:1:1: '`' (U+0060 GRAVE ACCENT) has no meaning here. Quote with a plain '.
  1 | `a
    | ^""",
    "#t": """\
inbox.lisp:1:1: '#' (U+0023 NUMBER SIGN) has no meaning here. A comment is ; to the end of the \
line, or #| … |#
  1 | #t
    | ^""",
    "a |# b": """\
inbox.lisp:1:3: this '|#' closes no comment. A comment is ; to the end of the line, or #| … |#
  1 | a |# b
    |   ^""",
    "(a : b)": """\
inbox.lisp:1:4: this ':' has no name. Write the name right after it, as in :timeout.
  1 | (a : b)
    |    ^""",
    ":a:b": """\
inbox.lisp:1:3: ':' (U+003A COLON) cannot be part of a name. Names consist of letters, digits, \
_ and - + * / < > = ! ? .
  1 | :a:b
    |   ^""",
    "(say “hi”)": """\
inbox.lisp:1:6: '“' (U+201C LEFT DOUBLE QUOTATION MARK) cannot be part of a name. Write a plain " \
instead.
  1 | (say “hi”)
    |      ^""",
    "（a）": """\
inbox.lisp:1:1: '（' (U+FF08 FULLWIDTH LEFT PARENTHESIS) cannot be part of a name. Write a plain ( \
instead.
  1 | （a）
    | ^""",
    "a\u00a0b": """\
inbox.lisp:1:2: U+00A0 NO-BREAK SPACE has no meaning here. Write a plain space instead.
  1 | a�b
    |  ^""",
    "a\u200bb": """\
inbox.lisp:1:2: U+200B ZERO WIDTH SPACE cannot be part of a name. Names consist of letters, \
digits, _ and - + * / < > = ! ? .
  1 | a�b
    |  ^""",
    "a\ufeff": """\
inbox.lisp:1:2: U+FEFF ZERO WIDTH NO-BREAK SPACE has no meaning here. Remove it.
  1 | a�
    |  ^""",
    "(\x1b[31m)": """\
inbox.lisp:1:2: U+001B CONTROL CHARACTER has no meaning here. Remove it.
  1 | (�[31m)
    |  ^""",
    "\ud800": """\
inbox.lisp:1:1: U+D800 LONE SURROGATE has no meaning here. Remove it.
  1 | �
    | ^""",
    '"a\x00"': """\
inbox.lisp:1:3: a string cannot contain U+0000 CONTROL CHARACTER. Write \\u{0}.
  1 | "a�"
    |   ^""",
    '"\udfff"': """\
inbox.lisp:1:2: a string cannot contain U+DFFF LONE SURROGATE. Remove it.
  1 | "�"
    |  ^""",
    r'"a\q"': """\
inbox.lisp:1:3: '\\' cannot be followed by 'q' (U+0071 LATIN SMALL LETTER Q). The escapes are \\n \
\\t \\r \\" \\\\ and \\u{HEX}.
  1 | "a\\q"
    |   ^""",
    r'"\u0041"': """\
inbox.lisp:1:2: this \\u is not followed by a code of one to six digits in braces. Write it as in \
\\u{1F333}.
  1 | "\\u0041"
    |  ^""",
    r'"\u{D800}"': """\
inbox.lisp:1:2: U+D800 is not a character. Characters are U+0 to U+D7FF and U+E000 to U+10FFFF.
  1 | "\\u{D800}"
    |  ^""",
    r'"\u{110000}"': """\
inbox.lisp:1:2: U+110000 is not a character. Characters are U+0 to U+D7FF and U+E000 to U+10FFFF.
  1 | "\\u{110000}"
    |  ^""",
    b"(a\n \xffb)": """\
inbox.lisp:2:2: the byte 0xFF at offset 4 is not UTF-8. Save the text as UTF-8.
  2 |  �b)
    |  ^""",
    b"\xef\xbb\xbf\xe9t\xe9": """\
inbox.lisp:1:1: the byte 0xE9 at offset 3 is not UTF-8. Save the text as UTF-8.
  1 | �t�
    | ^""",
    "x" * 10 + " " + "1" * 5_000: f"""\
inbox.lisp:1:12: this number is 5,000 characters long. The longest allowed is 4,000.
  1 | xxxxxxxxxx {"1" * 40}…
    |            ^""",
    "1" + "a" * 100: f"""\
inbox.lisp:1:1: '1{"a" * 38}…' is not a number. Numbers look like 42, -7, 0.5 or 1e-3; a name \
cannot start with a digit.
  1 | 1{"a" * 39}…
    | ^""",
}


@pytest.mark.parametrize(("text", "message"), MISTAKES.items(), ids=range(len(MISTAKES)))
def test_mistakes(text: str | bytes, message: str) -> None:
    """A mistake names its place, what is wrong there and what to do, under a caret."""
    error = failure(text)
    assert not isinstance(error, UnexpectedEnd)
    assert as_text(error) == message


@pytest.mark.parametrize(("opener", "closer"), ["()", "[]", "'-"])
def test_nesting_has_a_limit(opener: str, closer: str) -> None:
    """Forms nest MAX_DEPTH deep, quotes included, and not one deeper."""
    middle, end = ("a", "") if opener == "'" else ("", closer)
    assert len(read(opener * MAX_DEPTH + middle + end * MAX_DEPTH)) == 1
    error = failure(opener * (MAX_DEPTH + 1))
    assert str(error) == (
        "inbox.lisp:1:1001: forms are nested more than 1,000 deep here. "
        "Move the inner forms elsewhere and refer to them by name."
    )


def test_reads_a_file(tmp_path: Path) -> None:
    """A file's forms carry its path."""
    path = tmp_path / "inbox.lisp"
    path.write_bytes(b"\xef\xbb\xbf(a)\r\n")
    (form,) = read_file(path)
    assert form == lst(s("a"))
    assert str(form.span) == f"{path}:1:1"


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """A path that is no readable file says why, and names the file that was likely meant."""
    (tmp_path / "inbox.lisp").touch()
    table = {
        tmp_path / "inbx.lisp": "there is no such file. Did you mean 'inbox.lisp'?",
        tmp_path / "none" / "a.lisp": "there is no such file. Check the path.",
        tmp_path: "is a directory. Pass a .lisp file.",
        Path("/dev/zero"): "is not a regular file. Pass a .lisp file.",
        tmp_path / "inbox.lisp" / "a": "cannot be read (Not a directory). "
        "Check the path and its permissions.",
        tmp_path / "a\0b": "cannot be read (embedded null byte). "
        "Check the path and its permissions.",
    }
    for path, message in table.items():
        with pytest.raises(ReadError) as caught:
            read_file(path)
        assert as_text(caught.value) == f"{path}: {message}"
