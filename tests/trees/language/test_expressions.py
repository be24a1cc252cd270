"""The expression language: values, mistakes found at load, and mistakes found while running."""

from __future__ import annotations

from typing import Any

import pytest

from dodona.core.errors import DodonaError, as_text
from dodona.trees import FAILURE, SUCCESS, Outcome, Registry, load, run
from dodona.trees.nodes import KINDS

BOARD = {
    "one": 1,
    "half": 0.5,
    "yes": True,
    "no": False,
    "nothing": None,
    "text": "abc",
    "empty": "",
    "list": [1, "two", None, [4]],
    "map": {"a": 1, "b": {"c": 2}, "n": None},
    "huge": 2**4000,
}


async def evaluated(source: str) -> Outcome:
    tree = load(
        f'(tree "main" :blackboard-schema {{:r "unset"}} (subtree s :blackboard-schema {{:any nil}}'
        f" (sequence (set :any {source}) (keep))))",
        registry=REGISTRY,
        host_keys=BOARD,
    )
    KEPT.clear()
    return await run(tree, BOARD)


REGISTRY = Registry(KINDS)
KEPT: list[Any] = []


@REGISTRY.leaf("keep", reads=("any",))
def keep(board: Any) -> None:
    KEPT.append(board["any"])


VALUES: list[tuple[str, Any]] = [
    # literals and data
    ("1", 1),
    ("-1.5", -1.5),
    ('"text"', "text"),
    ("true", True),
    ("false", False),
    ("nil", None),
    (":word", "word"),
    ("[1 [2] nil]", [1, [2], None]),
    ("{:a 1 :b [true]}", {"a": 1, "b": [True]}),
    ("'(a 1 (b))", ["a", 1, ["b"]]),
    ("'word", "word"),
    ("[(+ 1 1) (blackboard :one)]", [2, 1]),
    ("{:a (* 2 (blackboard :one)) :b nil}", {"a": 2, "b": None}),
    # the blackboard
    ("(blackboard :text)", "abc"),
    ("(blackboard :nothing)", None),
    ("(blackboard :_item)", None),
    # arithmetic
    ("(+ 1)", 1),
    ("(+ 1 2 3.5)", 6.5),
    ("(- 5)", -5),
    ("(- 5 1 1)", 3),
    ("(* 2 3 4)", 24),
    ("(/ 7 2)", 3.5),
    ("(mod 7 3)", 1),
    ("(mod -7 3)", 2),
    ("(min 3 1 2)", 1),
    ("(max 3 1.5)", 3),
    ("(+ (blackboard :one) (blackboard :half))", 1.5),
    # comparison
    ("(< 1 2)", True),
    ("(< 1 2 3)", True),
    ("(< 1 3 2)", False),
    ("(< 2 2)", False),
    ("(<= 2 2 3)", True),
    ("(> 3 2 1)", True),
    ("(>= 1 1.0)", True),
    ('(< "a" "b")', True),
    ("(= 1 1.0)", True),
    ("(= 1 2)", False),
    ("(!= 1 2)", True),
    ('(= "1" 1)', False),
    ("(= nil nil)", True),
    ("(= nil false)", False),
    ("(= nil 0)", False),
    ("(= [1 2] [1 2])", True),
    ("(= {:a 1} {:a 1})", True),
    # a number is not a boolean, wherever it stands
    ("(= 1 true)", False),
    ("(= 0 false)", False),
    ("(!= 1 true)", True),
    ("(= [1] [true])", False),
    ("(= {:a 0} {:a false})", False),
    ("(in true [1])", False),
    ("(in 0 [false nil])", False),
    ("(in [true] [[1]])", False),
    # boolean: the deciding value, and no further than needed
    ("(and true 2)", 2),
    ("(and 1 0 (blackboard :missing))", 0),
    ("(or nil 3)", 3),
    ("(or nil false)", False),
    ("(or 1 (blackboard :missing))", 1),
    ("(not nil)", True),
    ("(not [])", True),
    ("(not {})", True),
    ('(not "")', True),
    ("(not 0)", True),
    ("(not 0.0)", True),
    ("(not [0])", False),
    ('(not " ")', False),
    ("(and (blackboard :yes) (not (blackboard :no)))", True),
    # length, membership, get
    ('(length "abc")', 3),
    ("(length [])", 0),
    ("(length (blackboard :map))", 3),
    ("(length nil)", 0),
    ("(in 1 (blackboard :list))", True),
    ("(in nil (blackboard :list))", True),
    ("(in 9 (blackboard :list))", False),
    ('(in "b" "abc")', True),
    ("(in :a (blackboard :map))", True),
    ('(in "z" (blackboard :map))', False),
    ("(in 1 nil)", False),
    ("(get (blackboard :map) :a)", 1),
    ('(get (blackboard :map) "a")', 1),
    ("(get (get (blackboard :map) :b) :c)", 2),
    ("(get (blackboard :map) :z)", None),
    ("(get (blackboard :map) :z 7)", 7),
    ("(get (blackboard :map) :n 7)", 7),  # nil means: not set
    ("(get (blackboard :list) 1)", "two"),
    ("(get (blackboard :list) 99)", None),
    ("(get (blackboard :list) 99 0)", 0),
    ("(get nil :a)", None),
    ("(get nil :a 5)", 5),
]


@pytest.mark.parametrize(("source", "value"), VALUES, ids=[row[0] for row in VALUES])
async def test_values(source: str, value: Any) -> None:
    """An expression has this value, of this very type."""
    outcome = await evaluated(source)
    assert outcome.error is None
    assert (KEPT, [type(v) for v in KEPT]) == ([value], [type(value)])


WRONG: list[tuple[str, int, str]] = [
    # expression, columns from its start to the caret, message
    ("(lenth [1])", 1, "unknown operator 'lenth'. Did you mean 'length'?"),
    (
        "(xyzzy)",
        1,
        "unknown operator 'xyzzy'. The operators are: blackboard = != < <= > >= and or not + -"
        " * / mod min max length in get.",
    ),
    ("(= 1)", 0, "'=' takes 2 arguments (got 1)."),
    ("(not)", 0, "'not' takes 1 argument (got 0)."),
    ("(not 1 2)", 0, "'not' takes 1 argument (got 2)."),
    ("(+)", 0, "'+' takes 1 argument or more (got 0)."),
    ("(< 1)", 0, "'<' takes 2 arguments or more (got 1)."),
    ("(get [1])", 0, "'get' takes 2 to 3 arguments (got 1)."),
    ("(blackboard)", 0, "'blackboard' takes one key. Write (blackboard :key)."),
    ("(blackboard x)", 0, "'blackboard' takes one key. Write (blackboard :key)."),
    ("(blackboard :x :y)", 0, "'blackboard' takes one key. Write (blackboard :key)."),
    (
        "()",
        0,
        "an expression starts with an operator. Data is written [a b] or '(a b).",
    ),
    (
        "foo",
        0,
        "'foo' has no value here. Read a key with (blackboard :foo), or quote a word: 'foo.",
    ),
    ('(+ 1 "a")', 0, 'cannot calculate with the string "a" in (+ 1 "a").'),
    ("(+ 1 true)", 0, "cannot calculate with the boolean true in (+ 1 true)."),
    ("(+ nil 1)", 0, "cannot calculate with nil in (+ nil 1)."),
    ('(< 1 "a")', 0, 'cannot compare the integer 1 with the string "a" in (< 1 "a").'),
    ("(< nil 1)", 0, "cannot compare nil with the integer 1 in (< nil 1)."),
    ("(< true 1)", 0, "cannot compare the boolean true with the integer 1 in (< true 1)."),
    ("(length 5)", 0, "the integer 5 has no length in (length 5)."),
    ("(in 1 2)", 0, "cannot look for the integer 1 in the integer 2 in (in 1 2)."),
    ("(get 5 1)", 0, "cannot get the integer 1 from the integer 5 in (get 5 1)."),
    ('(get [1] "a")', 0, 'cannot get the string "a" from a list in (get [1] "a").'),
    ("(get {:a 1} [1])", 0, "cannot get a list from a map in (get {:a 1} [1])."),
    ("(get [1] true)", 0, "cannot get the boolean true from a list in (get [1] true)."),
    ("(/ 1 0)", 0, "division by zero in (/ 1 0)."),
    ("(/ 1.0 0)", 0, "division by zero in (/ 1.0 0)."),
    ("(mod 1 0)", 0, "division by zero in (mod 1 0)."),
]


@pytest.mark.parametrize(("source", "column", "message"), WRONG, ids=[row[0] for row in WRONG])
@pytest.mark.parametrize(
    ("before", "after"), [("(set :r ", ")"), ("(condition ", ")"), ("(guard ", " (succeed))")]
)
def test_mistakes_at_load(before: str, after: str, source: str, column: int, message: str) -> None:
    """A mistake that can be seen is told at load, once, with its place; wherever it is written."""
    if source == "foo" and before == "(condition ":
        before = "(condition (not "  # a word right behind condition is its name
        after = "))"
    text = f'(tree "main" {before}{source}{after})'
    with pytest.raises(DodonaError) as caught:
        load(text, registry=Registry(KINDS))
    where = text.index(source) + column
    first, *excerpt = as_text(caught.value).splitlines()
    assert first.startswith(f"<text>:1:{where + 1}: {message}")
    assert all(problem.hint for problem in caught.value.problems())
    assert len(excerpt) == 2
    assert excerpt[0][excerpt[1].index("^") :].startswith(source[column:][:3])


AT_RUN_TIME: list[tuple[str, str, str]] = [
    (
        "(< (blackboard :nothing) 1)",
        "ExpressionError",
        "<text>:1:25: cannot compare nil with the integer 1 in (< (blackboard :nothing) 1).",
    ),
    (
        "(= 0 (mod 5 (- (blackboard :one) 1)))",
        "ExpressionError",
        "<text>:1:30: division by zero in (mod 5 (- (blackboard :one) 1)).",
    ),
    (
        "(length (blackboard :one))",
        "ExpressionError",
        "<text>:1:25: the integer 1 has no length in (length (blackboard :one)).",
    ),
    (
        "(+ 1 (blackboard :map))",
        "ExpressionError",
        "<text>:1:25: cannot calculate with a map in (+ 1 (blackboard :map)).",
    ),
    (
        "(blackboard :txt)",
        "KeyMissing",
        "no key ':txt' on the blackboard. Did you mean 'text'?",
    ),
]


@pytest.mark.parametrize(("source", "kind", "message"), AT_RUN_TIME)
async def test_mistakes_at_run_time(source: str, kind: str, message: str) -> None:
    """A condition that cannot be told fails its node; `_error` says where and why."""
    tree = load(f'(tree "main" (condition {source}))', registry=Registry(KINDS), host_keys=BOARD)
    outcome = await run(tree, BOARD)
    assert outcome.status is FAILURE
    assert outcome.error is not None
    assert outcome.error["message"].startswith(message)
    assert (outcome.error["node"], outcome.error["type"]) == ("condition", kind)
    assert outcome.blackboard["_error"] == outcome.error


@pytest.mark.parametrize(
    "source",
    [
        "(guard (< (blackboard :nothing) 1) (succeed))",
        "(set :r (+ (blackboard :nothing) 1))",
        "(for-each (+ (blackboard :nothing) 1) (succeed))",
        "(parallel (for-each (+ (blackboard :nothing) 1) (succeed)))",
        "(repeater :max-iterations (blackboard :text) (succeed))",
        "(repeater :max-iterations (blackboard :no) (succeed))",
        "(repeater :max-iterations (blackboard :half) (succeed))",
        "(repeater :max-iterations 2 :until (< (blackboard :nothing) 1) (succeed))",
        "(retry :times (blackboard :nothing) (fail))",
        "(retry :times (- (blackboard :one) 1) (fail))",
        "(timeout :seconds (blackboard :text) (succeed))",
        "(timeout :seconds (- (blackboard :half) 1) (succeed))",
        "(wait :seconds (blackboard :nothing))",
        "(parallel :max-concurrent (blackboard :text) (succeed))",
        "(parallel :policy :require-n :n (blackboard :nothing) (succeed))",
        "(action keep :x (+ (blackboard :nothing) 1))",
    ],
)
async def test_every_argument_may_be_wrong(source: str) -> None:
    """An argument that cannot be told, or is out of bounds, fails its node and not the run."""
    registry = Registry(KINDS)
    registry.leaf("keep")(lambda board, x=1: None)
    tree = load(
        f'(tree "main" :blackboard-schema {{:r nil}} (selector {source} (set :r "next")))',
        registry=registry,
        host_keys=BOARD,
    )
    outcome = await run(tree, BOARD)
    assert (outcome.status, outcome.blackboard["r"]) == (SUCCESS, "next")
    assert outcome.blackboard["_error"]["type"] == "ExpressionError"


@pytest.mark.parametrize(
    "source",
    [
        "(* (blackboard :huge) (blackboard :huge))",
        "(+ (blackboard :huge) (* 1.0 (blackboard :huge)))",
    ],
)
async def test_numbers_stay_bounded(source: str) -> None:
    """No number grows past its bounds: the node fails instead."""
    outcome = await evaluated(source)
    assert outcome.status is FAILURE
    assert outcome.error
    assert outcome.error["type"] == "ExpressionError"


async def test_no_infinity() -> None:
    """No expression makes a number that neither a file of ours nor JSON can hold."""
    outcome = await evaluated("(* 1e308 10.0 (blackboard :one))")
    assert (outcome.status, KEPT) == (FAILURE, [])


async def test_constants_are_not_shared() -> None:
    """A literal list in a tree is a fresh one each time it is evaluated."""
    registry = Registry(KINDS)

    @registry.leaf("grow", reads=("r",), writes=("r",))
    def _(board: Any) -> None:
        board["r"].append(1)

    tree = load(
        '(tree "main" :blackboard-schema {:r nil} (sequence (set :r []) (grow)))', registry=registry
    )
    first = await run(tree)
    second = await run(tree)
    assert first.blackboard["r"] == second.blackboard["r"] == [1]


async def test_arguments_are_not_shared() -> None:
    """A leaf that changes the list it was given does not change the program."""
    registry = Registry(KINDS)
    seen: list[list[int]] = []

    @registry.leaf("take")
    def _(board: Any, items: list[int]) -> None:
        items.append(9)
        seen.append(items)

    tree = load('(tree "main" (repeater :max-iterations 2 (take :items [1])))', registry=registry)
    await run(tree)
    assert seen == [[1, 9], [1, 9]]
