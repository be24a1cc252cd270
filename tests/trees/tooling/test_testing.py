"""The language of `(test …)`: what passes, what a failure says, and what is no test at all."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import pytest

from dodona.lisp import List, read
from dodona.trees import Blackboard, Registry
from dodona.trees.nodes import KINDS
from dodona.trees.tooling import testing

TREE = """\
(tree "main"
  :blackboard-schema {:n 0 :word nil :items []}
  (sequence
    (retry :times 3 :backoff 10 (action a :fn "x.a"))
    (decorator allowed (action b :fn "x.b")))
  :finally (action z :fn "x.z"))
(tree "other" (fail))
"""
LINES = TREE.count("\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "t.lisp").write_text(TREE)
    return tmp_path


def results(folder: Path, tests: str, registry: Registry | None = None) -> list[testing.TestResult]:
    (folder / "t.test.lisp").write_text(tests)
    return list(
        testing.run_tests(testing.test_files(folder / "t.lisp"), registry or Registry(KINDS))
    )


def failures(folder: Path, parts: str, registry: Registry | None = None) -> Sequence[str]:
    """What one test fails with; leaves that it does not script succeed."""
    [result] = results(folder, f'(test "one" {parts})', registry)
    return result.failures


# -- what passes -----------------------------------------------------------------------------------

PASSING: dict[str, str] = {
    "status": ":leaves {:default :success} :expect {:status :success}",
    "failure": ':leaves {"x.a" :failure :default :success} :expect {:status :failure}',
    "given": ":given {:n 4} :leaves {:default :success} :expect {:blackboard {:n 4}}",
    "set": ':leaves {"x.a" {:set {:n (+ (blackboard :n) 2)}} :default :success}'
    " :expect {:blackboard {:n 2}}",
    "set, then fail": ':leaves {"x.b" {:status :failure :set {:word "hi"}} :default :success}'
    ' :expect {:status :failure :blackboard {:word "hi"}}',
    "raise": ':leaves {"x.b" {:raise "no such note"} :default :success}'
    ' :expect {:status :failure :error "such"}',
    "one after the other": ':leaves {"x.a" [:failure {:raise "no"} :success] :default :success}'
    ' :expect {:status :success :calls {"x.a" 3 "x.b" 1}}',
    "the last one stays": ':leaves {"x.a" [:success :failure] :default :success}'
    ' :expect {:status :success :calls {"x.a" 1}}',
    "decorators are scripted and counted": ':leaves {"allowed" :failure :default :success}'
    ' :expect {:status :failure :calls {"allowed" 1} :never ["x.b"]}',
    "order": ':leaves {:default :success} :expect {:order ["x.a" "x.b" "x.z"] :calls {"x.z" 1}}',
    "order with others between": ':leaves {:default :success} :expect {:order ["x.a" "x.z"]}',
    "finally runs after a failure": ':leaves {"x.a" :failure :default :success}'
    ' :expect {:order ["x.a" "x.a" "x.a" "x.z"]}',
    "another tree": ':tree "other" :leaves {:default :success} :expect {:status :failure}',
    "containers": ":leaves {:default :success} :given {:items [1 {:a nil}]}"
    " :expect {:blackboard {:items [1 {:a nil}] :word nil}}",
}


@pytest.mark.parametrize("name", PASSING)
def test_what_passes(folder: Path, name: str) -> None:
    """Every sort of script and expectation, when it holds."""
    assert failures(folder, PASSING[name]) == ()


def test_results_are_in_order_and_located(folder: Path) -> None:
    """Each with its name, its place and whether it passed; tests in the tree's file come first."""
    (folder / "t.lisp").write_text(
        TREE + f'(test "in the tree\'s file" :tree "other" {D} :expect {{:status :failure}})'
    )
    found = results(
        folder,
        '(test "first" :leaves {:default :success} :expect {:status :success})\n'
        '(test "second \\"quoted\\"" :leaves {:default :success} :expect {:status :failure})',
    )
    assert [(result.name, result.passed) for result in found] == [
        ("in the tree's file", True),
        ("first", True),
        ('second "quoted"', False),
    ]
    assert [result.where.removeprefix(f"{folder}/") for result in found] == [
        f"t.lisp:{LINES + 1}:1",
        "t.test.lisp:1:1",
        "t.test.lisp:2:1",
    ]


def test_tests_do_not_touch_each_other(folder: Path) -> None:
    """Scripts begin anew, and so does the blackboard."""
    one = '(test "t" :leaves {"x.a" [:failure {:set {:n 1}}] :default :success} :expect'
    found = results(folder, f'{one} {{:calls {{"x.a" 2}}}}) {one} {{:calls {{"x.a" 2}}}})')
    assert [result.failures for result in found] == [(), ()]


# -- what a failure says ---------------------------------------------------------------------------

FAILING: dict[str, tuple[str, tuple[str, ...]]] = {
    "status": (
        ":leaves {:default :success} :expect {:status :failure}",
        ("status: expected failure, got success",),
    ),
    "status with its reason": (
        ':leaves {"x.a" {:raise "offline"} :default :success} :expect {:status :success}',
        ("status: expected success, got failure (offline)",),
    ),
    "blackboard": (
        ':leaves {:default :success} :expect {:blackboard {:n 3 :word "x"}}',
        ("blackboard :n: expected 3, got 0", "blackboard :word: expected 'x', got None"),
    ),
    "calls": (
        ':leaves {:default :success} :expect {:calls {"x.a" 2}}',
        ("calls to x.a: expected 2, got 1",),
    ),
    "never": (
        ':leaves {"x.a" :failure :default :success} :expect {:never ["x.a"]}',
        ("x.a was called 3 times, but should never be called",),
    ),
    "order": (
        ':leaves {:default :success} :expect {:order ["x.b" "x.a"]}',
        ("order: expected x.b → x.a, got x.a → x.b",),
    ),
    "order, nothing was called": (
        ':tree "other" :leaves {:default :success} :expect {:order ["x.a"]}',
        ("order: expected x.a, got nothing",),
    ),
    "error": (
        ':leaves {"x.b" {:raise "boom"} :default :success} :expect {:error "bang"}',
        ("error: expected a message with 'bang', got 'boom'",),
    ),
    "error, there was none": (
        ':leaves {:default :success} :expect {:error "bang"}',
        ("error: expected a message with 'bang', got ''",),
    ),
    "true is not 1": (
        ":leaves {:default :success} :given {:word 1} :expect {:blackboard {:word true}}",
        ("blackboard :word: expected True, got 1",),
    ),
    "all at once": (
        ':leaves {"x.a" {:raise "boom"} :default :success} :expect {:status :success'
        ' :blackboard {:n 1} :calls {"x.a" 1} :never ["x.z"] :order ["x.b"] :error "bang"}',
        (
            "status: expected success, got failure (boom)",
            "blackboard :n: expected 1, got 0",
            "calls to x.a: expected 1, got 3",
            "x.z was called 1 times, but should never be called",
            "order: expected x.b, got nothing",
            "error: expected a message with 'bang', got 'boom'",
        ),
    ),
}


@pytest.mark.parametrize("name", FAILING)
def test_what_a_failure_says(folder: Path, name: str) -> None:
    """Every expectation that does not hold, with what was found instead."""
    parts, said = FAILING[name]
    assert failures(folder, parts) == said


# -- what is no test -------------------------------------------------------------------------------

D = ":leaves {:default :success}"
E = ":expect {:status :success}"

# What stands in the test → where in "(test …)" and what is said.
BAD: dict[str, tuple[str, int, str]] = {
    "no name": (f"(test {E})", 1, 'a test needs a name. (test "name" …)'),
    "no expectation": ('(test "t" :given {})', 1, "the test expects nothing. Add :expect."),
    "empty expectation": ('(test "t" :expect {})', 1, "the test expects nothing. Add :expect."),
    "unknown word": (
        f'(test "t" :leafs {{}} {E})',
        11,
        "'test' does not take :leafs here. Did you mean 'leaves'?",
    ),
    "no keyword": (
        f'(test "t" (succeed) {E})',
        11,
        "'test' does not take (succeed) here. It takes :tree :given :leaves :expect.",
    ),
    "no value": (f'(test "t" {E} :given)', 38, "':given' has no value."),
    "unknown expectation": (
        '(test "t" :expect {:statu :success})',
        19,
        "':expect' has no ':statu'. Did you mean 'status'?",
    ),
    "given no map": (f'(test "t" :given [1] {E})', 18, "':given' takes a map."),
    "leaves no map": (f'(test "t" :leaves [1] {E})', 19, "':leaves' takes a map of leaf names."),
    "leaf named by a keyword": (
        f'(test "t" :leaves {{:x :success}} {E})',
        20,
        'a leaf is named by a string. Write {"dotted.name" :success}; '
        "the keyword :default applies to all other leaves.",
    ),
    "no outcome": (
        f'(test "t" :leaves {{"x.a" []}} {E})',
        26,
        "a script needs an outcome.",
    ),
    "an outcome that is none": (
        f'(test "t" :leaves {{"x.a" 3}} {E})',
        26,
        "an outcome is :success, :failure or a map. The map takes :status :set :raise :after.",
    ),
    "running": (
        f'(test "t" :leaves {{"x.a" :running}} {E})',
        26,
        "a leaf ends in :success or :failure.",
    ),
    "unknown word of an outcome": (
        f'(test "t" :leaves {{"x.a" {{:sets {{}}}}}} {E})',
        27,
        "an outcome takes :status :set :raise :after.",
    ),
    "set no map": (
        f'(test "t" :leaves {{"x.a" {{:set 3}}}} {E})',
        32,
        "':set' takes a map of keys.",
    ),
    "after no number": (
        f'(test "t" :leaves {{"x.a" {{:after "3"}}}} {E})',
        34,
        "this value has the wrong type.",
    ),
    "wrong operator in a script": (
        f'(test "t" :leaves {{"x.a" {{:set {{:n (plus 1 2)}}}}}} {E})',
        37,
        "unknown operator 'plus'.",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_test_is_located(folder: Path, name: str) -> None:
    """It fails with its mistake at its place, and `check` finds the same."""
    text, column, said = BAD[name]
    [result] = results(folder, text)
    first = result.failures[0].splitlines()[0]
    assert re.sub(r"^.*t\.test\.lisp:", "", first).startswith(f"1:{column}: {said}")
    form = read(text)[0]
    assert isinstance(form, List)
    [problem] = testing.check_tests([form])
    assert str(problem).startswith(f"<text>:1:{column}: {said}")


WRONG_TYPES: dict[str, str] = {
    "calls is a list": f'(test "t" {D} :expect {{:calls ["x.a"]}})',
    "blackboard is a number": f'(test "t" {D} :expect {{:blackboard 3}})',
    "order is a string": f'(test "t" {D} :expect {{:order "x.a"}})',
    "error is a number": f'(test "t" {D} :expect {{:error 3}})',
    "tree is a number": f'(test "t" :tree 3 {D} {E})',
    "set with a string for a key": '(test "t" :leaves {"x.a" {:set {"n" 3}} :default :success} '
    f"{E})",
    "given twice": f'(test "t" {D} :expect {{:status :failure}} {E})',
}


@pytest.mark.parametrize("name", WRONG_TYPES)
def test_an_expectation_of_the_wrong_type_is_located(folder: Path, name: str) -> None:
    """Neither a traceback nor a test that quietly passes: a mistake with its place."""
    [result] = results(folder, WRONG_TYPES[name])
    assert "t.test.lisp:1:" in "".join(result.failures)


def test_a_tree_that_is_not_there_is_located(folder: Path) -> None:
    """With the nearest name."""
    [said] = failures(folder, f':tree "othr" {D} {E}')
    assert "t.test.lisp:1:" in said
    assert "there is no tree \"othr\". Did you mean 'other'?" in said


@pytest.mark.parametrize(
    "parts",
    [
        ':leaves {"x.q" :success :default :success} :expect {:status :success}',
        ':leaves {:default :success} :expect {:calls {"x.q" 0}}',
        ':leaves {:default :success} :expect {:never ["x.q"]}',
        ':leaves {:default :success} :expect {:order ["x.a" "x.q"]}',
    ],
)
def test_a_name_that_no_tree_calls_is_refused(folder: Path, parts: str) -> None:
    """An expectation of it could not fail; most likely it is misspelt."""
    [said] = failures(folder, parts)
    assert re.search(r"t\.test\.lisp:1:1: no tree calls a leaf 'x\.q'\. Did you mean 'x\.", said)


def test_a_leaf_that_nobody_scripts_or_registers_is_a_mistake_of_the_test(folder: Path) -> None:
    """Without :default every leaf must be known."""
    [said] = failures(folder, ':leaves {"x.a" :success} :expect {:status :success}')
    assert "no leaf is registered as 'x.b'." in said


def test_a_value_that_the_schema_refuses(folder: Path) -> None:
    """`:given` of the wrong type fails the test with the blackboard's own words."""
    [said] = failures(folder, f':given {{:n "three"}} {D} {E}')
    assert "key ':n' takes a number (got the string \"three\")." in said


# -- registered leaves -----------------------------------------------------------------------------


def real() -> Registry:
    registry = Registry(KINDS)

    @registry.leaf("x.a")
    def a(bb: Blackboard) -> bool:
        bb["n"] = bb["n"] + 1
        return bb["n"] >= 2

    @registry.leaf("x.b", effect="none")
    async def b(bb: Blackboard) -> None:
        await asyncio.sleep(3600)
        bb["word"] = "real"

    @registry.decorator("allowed")
    def allowed(bb: Blackboard) -> None: ...

    return registry


def test_calls_of_registered_leaves_are_counted(folder: Path) -> None:
    """A leaf that the test does not script is the registered one, and its calls are seen."""
    parts = (
        ':leaves {"x.z" :success} :expect {:status :success :blackboard {:n 2 :word "real"}'
        ' :calls {"x.a" 2 "x.b" 1} :order ["x.a" "x.a" "x.b" "x.z"]}'
    )
    assert failures(folder, parts, real()) == ()
    assert failures(folder, ':leaves {:default :success} :expect {:never ["x.b"]}', real()) == (
        "x.b was called 1 times, but should never be called",
    )


def test_a_script_comes_before_a_registered_leaf_and_that_before_the_default(folder: Path) -> None:
    """x.a is scripted, x.b is real, x.z does what :default says."""
    parts = (
        ':leaves {"x.a" {:set {:n 7}} :default :failure}'
        ' :expect {:status :success :blackboard {:n 7 :word "real"} :calls {"x.z" 1}}'
    )
    assert failures(folder, parts, real()) == ()


def test_calls_of_registered_decorators_are_counted(folder: Path) -> None:
    """As those of leaves are: an expectation of one can hold."""
    parts = ':leaves {"x.z" :success} :expect {:calls {"allowed" 1}}'
    assert failures(folder, parts, real()) == ()


# -- time ------------------------------------------------------------------------------------------


def test_time_is_virtual(tmp_path: Path) -> None:
    """Hours of waiting, timeouts and backoff take no time, and happen in their order."""
    (tmp_path / "t.lisp").write_text(
        '(tree "slow" :blackboard-schema {:n 0} (sequence (wait :seconds 36000)'
        ' (selector (timeout :seconds 60 (action late :fn "late"))'
        ' (retry :times 5 :backoff 3600 (action again :fn "again")))))'
    )
    begun = perf_counter()
    [slow, quick] = results(
        tmp_path,
        '(test "slow" :leaves {"late" {:after 61} "again" :failure}'
        ' :expect {:status :failure :calls {"again" 5}})'
        '(test "quick" :leaves {"late" {:after 59} "again" :failure}'
        ' :expect {:status :success :never ["again"]})',
    )
    assert (slow.failures, quick.failures) == ((), ())
    assert perf_counter() - begun < 10


def test_a_tree_that_never_ends_fails_its_test(tmp_path: Path) -> None:
    """A leaf that waits for nothing is stuck in the end; the test is not."""
    (tmp_path / "t.lisp").write_text('(tree "t" (action hangs :fn "hangs"))')
    registry = Registry(KINDS)

    @registry.leaf("hangs", effect="none")
    async def hangs(bb: Blackboard) -> None:
        await asyncio.Event().wait()

    [result] = results(tmp_path, '(test "t" :expect {:status :success})', registry)
    assert result.failures[0].startswith("status: expected success, got failure (no progress for ")


def test_a_leaf_in_a_thread_is_waited_for(folder: Path) -> None:
    """Virtual time stands still while a registered leaf works in a thread or hands work to one."""
    registry = Registry(KINDS)

    @registry.leaf("x.a", thread=True)
    def in_thread(bb: Blackboard) -> None:
        time.sleep(0.05)

    @registry.leaf("x.b", effect="none")
    async def in_pool(bb: Blackboard) -> None:
        await asyncio.to_thread(time.sleep, 0.05)

    path = folder / "threads.lisp"
    path.write_text(
        '(tree "t" (timeout :seconds 3 (sequence (action :fn "x.a") (action :fn "x.b"))))\n'
        '(test "both end" :expect {:status :success})\n'
    )
    [result] = testing.run_tests([path], registry)
    assert result.failures == ()
