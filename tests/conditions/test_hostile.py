"""Expressions that want to hang the host, to crash it or to eat its memory."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from time import thread_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dodona.conditions import BoundedValues, ConditionFailed, compile_condition
from dodona.core.errors import ConfigError

NAMES = ("v",)
VALUES: dict[str, Any] = {
    "v": {
        "list": list(range(200)),
        "text": "a" * 1_999 + "!",
        "needle": "a" * 1_000 + "b",
        "deep": [[["x" * 90] * 8] * 8] * 8,
    }
}
TREE = "Shorten the expression, or use a tree."

REFUSED = [
    ("v.list.all(a, v.list.all(b, a < b))", f"1:22: 'all' cannot be nested in a macro. {TREE}"),
    (
        "[v.text].map(a, a + a).map(a, a + a) == []",
        "1:19: '+' cannot be used inside a macro. Subtract on the other side instead.",
    ),
    ("v.text" + " + v.text" * 9 + " == ''", f"1:80: an expression can have at most 8 '+'. {TREE}"),
    ("v.list.all(a, a > 0)" + " && v.list.all(a, a > 0)" * 4, "at most 4 macros"),
    ("v.text.matches(v.text)", "1:8: a pattern must be a string literal. Put it in quotes."),
    ("v.text.matches('a' + v.text)", "1:8: a pattern must be a string literal. Put it in quotes."),
    (
        "v.text.matches('(a{1,100}){1,100}')",
        "1:8: a pattern cannot contain {…} or \\p. Write \\d\\d, not \\d{2}.",
    ),
    ("v.text.matches('a\\x7b9\\x7d')", "a pattern cannot contain"),
    ("v.text.matches('a\\1739}')", "a pattern cannot contain"),
    ("v.text.matches(r'(\\pL?)*')", "a pattern cannot contain"),
    (f"v.text.matches('{'a?' * 60}')", "a pattern must have at most 100 characters"),
    ("v.list.all(a, v.text.matches('a'))", "'matches' cannot be used inside a macro"),
    ("v.text.matches('a')" + " || v.text.matches('a')" * 4, "at most 4 patterns"),
    (
        "v.list.all(a, " + " && ".join(["v.deep == v.deep"] * 20) + ")",
        "too much for each list element",
    ),
    ("v.list. // here\n all(a, v.list\n.all(b, true))", "'all' cannot be nested in a macro"),
    ("r'\\' == '' || v.list.all(a, v.list.all(b, true))", "'all' cannot be nested in a macro"),
    ("'''x'y''' == '' || v.list.all(a, v.list.all(b, true))", "'all' cannot be nested in a macro"),
    ("true" + " && true" * 200, "an expression must have at most 1,000 characters"),
    ("(" * 400 + "1" + ")" * 400 + " == 1", "the expression is nested too deeply"),
    ("[" * 400 + "]" * 400 + " == []", "the expression is nested too deeply"),
    ("(" * 900, "the expression is nested too deeply"),
    ("v" + ".a" * 300 + " == 1", "the expression is nested too deeply"),
]


@pytest.mark.parametrize(("source", "told"), REFUSED)
def test_refused(source: str, told: str) -> None:
    """What could multiply is refused before it is compiled, by words and not by accident."""
    with pytest.raises(ConfigError) as raised:
        compile_condition(source, names=NAMES)
    assert told in str(raised.value)


COSTLY = [
    "v.text.matches('(a+)+$')",
    "v.text.matches('(a|aa|aaa|a*)*b')",
    "(" + " + ".join(["v.text"] * 8) + ").matches('(a*)*(a*)*(a*)*(a*)*(a*)*b')",
    "size(" + " + ".join(["v.text"] * 9) + ") > 0",
    "v.list.all(a, !v.text.contains(v.needle) && !v.text.contains(v.needle))",
    "v.list.all(a, v.deep == v.deep && v.deep == v.deep && v.deep == v.deep)",
    "v.list.all(a, v.deep in [v.deep, v.deep, v.deep])",
    "(v.list + v.list + v.list + v.list).all(a, a in v.list)",
    "[1].map(a, [a, a, a, a, a]).map(a, [a, a, a, a, a]).map(a, [a, a, a, a, a]) == []",
    "v.list.map(a, v.deep).map(b, b == v.deep) == []",
    "!" * 900 + "true",
    "-" * 900 + "1 == 1",
    "true" + "||true" * 150,
]


def _seconds(source: str) -> float:
    condition = compile_condition(source, names=NAMES)
    began = thread_time()
    with suppress(ConditionFailed):
        condition.holds(VALUES)
    return thread_time() - began


@pytest.mark.parametrize("source", COSTLY)
def test_the_worst_that_is_taken_ends_soon(source: str) -> None:
    """What is not refused takes milliseconds, even where it was made to take long."""
    assert _seconds(source) < 1.0


def test_memory_stays_small() -> None:
    """A process that has evaluated the worst of them has not grown by much."""
    code = (
        "import resource, sys\n"
        "from dodona.conditions import BoundedValues, compile_condition\n"
        "values = {'v': {'list': list(range(200)), 'text': 'a' * 2000, 'needle': 'b',"
        " 'deep': [[['x' * 90] * 8] * 8] * 8}}\n"
        "used = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "compile_condition('true', names=('v',)).holds(values)\n"
        "before = used()\n"
        f"for source in {COSTLY!r}:\n"
        "    try: compile_condition(source, names=('v',)).holds(values)\n"
        "    except Exception: pass\n"
        "print(used() - before)\n"
    )
    done = subprocess.run(  # noqa: S603 - our own
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 64 * 1024  # KB


class Unbounded(BoundedValues):
    """Values that were not cut: what the bounds are for."""

    def __getitem__(self, name: str) -> Any:
        return self._raw[name]


def test_what_took_too_long_is_not_asked_again() -> None:
    """An evaluation cannot be interrupted; but one that was too long has been the last."""
    condition = compile_condition("size(v) > 0", names=NAMES)
    assert condition.holds(Unbounded({"v": [0] * 6_000_000})) is True
    with pytest.raises(ConditionFailed) as raised:
        condition.holds(VALUES)
    assert (
        str(raised.value)
        == "the condition is disabled: an earlier evaluation took too long. Simplify it."
    )


def test_a_macro_sees_two_hundred() -> None:
    """However long a list is, a macro goes through its first two hundred members."""
    condition = compile_condition("v.all(a, a < 200) && size(v) == 200", names=NAMES)
    assert condition.holds({"v": list(range(20_000))}) is True


WORDS = st.sampled_from(
    [
        *("v", "v.list", "v.text", "v.deep", "a", "true", "1", "'a'", 'r"\\"', "'''", "[", "]"),
        *("(", ")", "{", "}", ".", ",", "+", "-", "!", "==", "&&", "||", "?", ":", "<", " in "),
        *(".all(a, ", ".map(a, ", ".exists(a, ", ".matches('a*')", "size(", "//", "\n", "\\"),
    ]
)


@settings(max_examples=400, deadline=None)
@given(st.lists(WORDS, max_size=60).map("".join) | st.text(max_size=200))
def test_any_text_is_refused_or_answers(source: str) -> None:
    """Whatever is written, it is taken or refused, holds or fails: never anything else."""
    try:
        condition = compile_condition(source, names=NAMES)
    except ConfigError as wrong:
        assert str(wrong)  # noqa: PT017 - either outcome is right
        assert wrong.where is not None  # noqa: PT017
        return
    try:
        assert condition.holds(VALUES) in (True, False)
    except ConditionFailed as failed:
        assert str(failed)  # noqa: PT017
