"""Conditions: what they answer, and what a wrong one says."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from dodona.conditions import (
    BoundedValues,
    ConditionFailed,
    LazyFields,
    compile_condition,
    compile_value,
)
from dodona.core.errors import ConfigError

NAMES = ("context.turn", "context.event", "context.result", "params")
VALUES: dict[str, Any] = {
    "context.turn": {"number": 3, "share": 1.5},
    "context.event": {"payload": {"items": [1, 2, 3], "text": "oak"}},
    "context.result": {},
    "params": {"most": 2},
}

ANSWERS = [
    ("context.turn.number > params.most", True),
    ("context.turn.number < params.most", False),
    ("context.turn.number > 2.5", True),
    ("size(context.event.payload.items) == 3", True),
    ("context.event.payload.items.exists(x, x > 2)", True),
    ("context.event.payload.items.all(x, x > 2)", False),
    ("context.event.payload.text.matches('^o.k$')", True),
    ("matches(context.event.payload.text, r'^\\w\\w$')", False),
    ("has(context.result.tool) && context.result.tool == 'x'", False),
    ("context.result.tool == 'x' || true", True),
    ("context.turn.number * 100 / 7 == 42", True),
    ("true", True),
]


@pytest.mark.parametrize(("source", "answer"), ANSWERS)
def test_answers(source: str, *, answer: bool) -> None:
    """A condition is CEL over the names it was given; dotted names are names too."""
    assert compile_condition(source, names=NAMES).holds(VALUES) is answer


MISTAKES = [
    ("", "1:1: the expression is empty. Write true for always."),
    ("contxt.turn.number > 1", "1:1: unknown name 'contxt'. Did you mean 'context'?"),
    ("1 < 2 && context.turnn.x == 1", "1:18: 'context' has no field 'turnn'. Did you mean 'turn'?"),
    (
        "context == 1",
        "1:1: 'context' is not a value. Use one of its fields: turn, event, result.",
    ),
    ("\n\n  paramss.most > 1", "3:3: unknown name 'paramss'. Did you mean 'params'?"),
    ("zebra", "1:1: unknown name 'zebra'. Available names: context, params."),
    ("params.most == None", "1:16: unknown name 'None'. Write null."),
    ("1 +", "1:4: unexpected end of the expression. Is a parenthesis or a value missing?"),
    ("1 = 2", "1:3: unexpected '='. Write == to compare."),
    ("true and false", "1:6: unexpected 'and'. Write &&."),
    ("len('a') > 1", "1:1: unknown function 'len'. Write size(…)."),
    (
        "context.event.payload.items.exist(x, x > 1)",
        "1:29: unknown function 'exist'. Did you mean 'exists'?",
    ),
    (
        "'a' + 1 == 'a1'",
        "1:5: '+' does not accept string and int. Convert with int(…), double(…) or string(…).",
    ),
    ("true ? 1 : 'x'", "1:6: both values after '?' must have the same type."),
    ("1 + 1", "1:1: a condition must be true or false (got int)."),
    ("'x'.matches('(')", "1:13: invalid regular expression: missing ): (."),
    ("'\ud800' == ''", "1:1: the expression is not valid. Is it plain text?"),
]


@pytest.mark.parametrize(("source", "told"), MISTAKES)
def test_mistakes_are_located(source: str, told: str) -> None:
    """A wrong expression says where in it, what, and what to write instead."""
    with pytest.raises(ConfigError) as raised:
        compile_condition(source, names=NAMES)
    assert str(raised.value) == told


def test_a_mistake_shows_its_line() -> None:
    """The excerpt has the line of the expression with a caret under the word."""
    with pytest.raises(ConfigError) as raised:
        compile_condition("true &&\n  zebra", names=NAMES)
    assert raised.value.where is not None
    assert raised.value.where.excerpt == "    zebra\n    ^"


FAILURES = [
    ("params.least == 1", "the key 'least' is missing. Test with has(…) first."),
    (
        "params.most",
        "the condition must be true or false (got int). Compare the value with something, as in "
        "size(name) > 0.",
    ),
    (
        "params.most * 1.5 > 1.0",
        "'*' does not accept int and double. Convert with int(…), double(…) or string(…).",
    ),
    ("params.most / 0 == 1", "divide by zero."),
    ("context.event.payload.items[9] == 1", "Index error: index=9 size=3."),
    ("9223372036854775807 + params.most > 0", "integer overflow."),
]


@pytest.mark.parametrize(("source", "told"), FAILURES)
def test_what_has_no_answer_fails(source: str, told: str) -> None:
    """A condition that these values give no answer to fails, and says why; it is not false."""
    condition = compile_condition(source, names=NAMES)
    with pytest.raises(ConditionFailed) as raised:
        condition.holds(VALUES)
    assert str(raised.value) == told


def test_a_missing_name_fails() -> None:
    """A name that was promised and not given is a failure like any other."""
    with pytest.raises(ConditionFailed):
        compile_condition("params.most > 1", names=NAMES).holds({})


def test_values_keep_their_types() -> None:
    """An expression that is evaluated for its value keeps numbers as numbers."""
    made = compile_value("[context.turn.number, context.turn.share]", names=NAMES)
    assert made.evaluate(VALUES) == [3, 1.5]
    assert type(made.evaluate(VALUES)[0]) is int


def test_a_failing_value_raises() -> None:
    """Evaluating for a value fails as a condition does."""
    with pytest.raises(ConditionFailed, match=r"the key 'x' is missing\. Test with has"):
        compile_value("params.x", names=NAMES).evaluate(VALUES)


def test_given_values_lie_over_others() -> None:
    """Of two layers of values the upper one counts, and the lower one fills in."""
    below = BoundedValues({"a": 1, "b": 2})
    assert dict(BoundedValues({"b": 3}, fallback=below)) == {"a": 1, "b": 3}
    assert "c" not in BoundedValues({}, fallback=below)


def test_the_library_is_imported_on_use() -> None:
    """Whoever imports conditions and compiles none does not pay for CEL."""
    code = "import sys, dodona.conditions; print('cel_expr_python' in sys.modules)"
    done = subprocess.run(  # noqa: S603 - our own
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("source", "built"),
    [
        ("context.turn.number > 0", []),
        ("context.history.failures == 2", []),
        ("context.history.messages.exists(m, m == 'oak')", ["messages"]),
        ("has(context.history.messages) && context.history.failures > 1", ["messages"]),
        ("has(context.history.none) || context.history.failures > 1", []),
        ("context . history . calls == ['oak'] && params.most == 0", ["calls"]),
        ("context.history['messages'] == ['oak']", ["calls", "messages"]),
        ("context.history[params.name] == ['oak']", ["calls", "messages"]),
        ("context.history.exists(name, name == 'calls')", ["calls", "messages"]),
        ("size(context.history) == 3", ["calls", "messages"]),
    ],
)
def test_a_field_is_built_only_if_the_expression_reads_it(source: str, built: list[str]) -> None:
    """An expression over the whole object reads all fields; several conditions share them."""
    names = ("context.turn", "context.history", "params")
    requested: list[str] = []

    def build(name: str) -> list[str]:
        requested.append(name)
        return ["oak"]

    lazy = LazyFields(
        {"failures": 2, "calls": lambda: build("calls"), "messages": lambda: build("messages")}
    )
    parts = {"context.turn": {"number": 1}, "context.history": lazy}
    shared = BoundedValues(parts)
    condition = compile_condition(source, names=names)
    for _ in range(2):
        params = {"params": {"name": "messages", "most": 0}}
        assert condition.holds(BoundedValues(params, fallback=shared))
    assert sorted(requested) == built


def test_a_missing_field_is_an_error_as_before() -> None:
    """It names the field."""
    with pytest.raises(ConditionFailed, match="the key 'nothing' is missing"):
        compile_condition("params.nothing > 1", names=("params",)).holds({"params": {"most": 1}})
