"""Ten megabytes of anything end in forms or in one short error. A hang is the failure."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dodona.core.errors import ReadError, as_text
from dodona.lisp import pretty, read, to_text

SIZE = 10_000_000


def filled(piece: str) -> str:
    return piece * (SIZE // len(piece))


FORMS: dict[str, Callable[[], str]] = {
    "one string": lambda: f'"{filled("a")}"',
    "a string of backslashes": lambda: f'"{filled(chr(92) * 2)}"',
    "a string of quotes": lambda: f'"{filled(chr(92) + chr(34))}"',
    "a string of lines": lambda: f'"{filled(chr(10))}"',
    "one symbol": lambda: filled("a"),
    "one symbol of accents": lambda: filled("é"),
    "one keyword": lambda: ":" + filled("a"),
    "one comment": lambda: filled(";"),
    "many comments": lambda: filled(";\n"),
    "blanks": lambda: filled(" "),
    "empty lines": lambda: filled("\r\n"),
}


@pytest.mark.parametrize("name", FORMS)
def test_reads(name: str) -> None:
    """What is long but right reads as at most one form."""
    assert len(read(FORMS[name]())) <= 1


ERRORS: dict[str, tuple[Callable[[], str | bytes], str]] = {
    "(": (lambda: filled("("), "1:1001: forms are nested more than 1,000 deep"),
    "[{(": (lambda: filled("[{("), "1:1001: forms are nested more than 1,000 deep"),
    "'": (lambda: filled("'"), "1:1001: forms are nested more than 1,000 deep"),
    ")": (lambda: filled(")"), "1:1: this ')' closes nothing"),
    "lines )": (lambda: filled("\n") + ")", "10000001:1: this ')' closes nothing"),
    ":": (lambda: filled(":"), "1:2: ':' (U+003A COLON) cannot be part of a name"),
    "digits": (lambda: filled("1"), "1:1: this number is 10,000,000 characters long"),
    "fraction": (lambda: "0." + filled("1"), "1:1: this number is 10,000,002 characters long"),
    "exponent": (lambda: "1e" + filled("1"), "1:1: this number is 10,000,002 characters long"),
    "12abc": (lambda: filled("12abc"), "1:1: this number is 10,000,000 characters long"),
    "bad end": (lambda: filled("a") + "@", "1:10000001: '@' (U+0040 COMMERCIAL AT) cannot"),
    "open string": (lambda: '"' + filled("a"), "1:1: this string is never closed"),
    "open escapes": (lambda: '"' + filled("\\"), "1:1: this string is never closed"),
    "#|": (lambda: filled("#|"), "1:1: this comment is never closed"),
    "|#": (lambda: filled("|#"), "1:1: this '|#' closes no comment"),
    "surrogates": (lambda: filled("\ud800"), "1:1: U+D800 LONE SURROGATE"),
    "bytes": (lambda: random.Random(1).randbytes(SIZE), "is not UTF-8"),  # noqa: S311
    "bad last byte": (lambda: filled("a").encode() + b"\xff", "1:10000001: the byte 0xFF"),
    "nul": (lambda: filled("\0"), "1:1: U+0000 CONTROL CHARACTER"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_refuses(name: str) -> None:
    """What is long and wrong is one located error of a few hundred characters."""
    make, message = ERRORS[name]
    with pytest.raises(ReadError) as caught:
        read(make())
    text = as_text(caught.value)
    assert message in text
    assert len(text) < 500


PIECES = st.sampled_from([*"()[]{}'`,;:#|\"\\ \n\t.-+19aeé“\0", "#|", "|#", ":a ", "\\u{4", "1e9"])


@settings(deadline=None, max_examples=300)
@given(st.lists(PIECES, max_size=60).map("".join) | st.text(max_size=30) | st.binary(max_size=30))
def test_anything_reads_or_is_a_read_error(text: str | bytes) -> None:
    """No text raises anything but a located ReadError, and forms that come out print and read."""
    try:
        forms = read(text)
    except ReadError as error:
        excerpt = error.where.excerpt if error.where else ""
        outcome = excerpt.count("\n") == 1
    else:
        outcome = read("\n".join(map(pretty, forms))) == forms
    assert outcome


def test_integer_keys_cannot_be_made_to_collide() -> None:
    """Keys chosen to have one hash cost no more than others."""
    modulus = sys.hash_info.modulus
    text = "{" + " ".join(f"{i * modulus} 1" for i in range(1, 30_001)) + "}"
    (form,) = read(text)
    assert to_text(form) == text


def calls(action: Callable[[], object]) -> int:
    """How many calls of Python functions an action takes: time, without a clock."""
    count = 0

    def on_event(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(on_event)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


def refused(text: str) -> None:
    with pytest.raises(ReadError):
        read(text)


SHAPES = {
    "atoms": "a 1 :b ",
    "lists": "(a)\n",
    "quotes": "''a ",
    "strings": r'"a\u{41}\n" "b" ',
    "comments": "#| a |# ; b\n",
    "nested": "(a [b {:c (d)}] 'e)\n",
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.slow
def test_work_grows_with_the_text(name: str) -> None:
    """Twice the text takes twice the steps: to read, to print, to refuse when unclosed."""

    def steps(times: int) -> list[int]:
        text = f"({SHAPES[name] * times})"
        (form,) = read(text)
        return [
            calls(lambda: read(text)),
            calls(lambda: refused(f"({text}")),
            calls(lambda: to_text(form)),
            calls(lambda: pretty(form)),
            calls(lambda: hash(form)),
            calls(lambda: form == read(text)[0]),
        ]

    for small, large in zip(steps(200), steps(400), strict=True):
        assert large <= 2.1 * small
