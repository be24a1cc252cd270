"""Tests of trees, written in the tree language.

    (test "gives up after three tries"
      :tree "inbox"                             ; default: the first tree of the file
      :given {:query "hello"}
      :leaves {"mail.fetch" [:failure :failure :failure]
               :default :success}
      :expect {:status :failure
               :blackboard {:answer nil}
               :calls {"mail.fetch" 3}
               :order ["mail.open" "mail.fetch"]
               :never ["mail.send"]
               :error "no such note"})

Leaves return the scripted results. A leaf without a script is the registered one, or :default if
none is registered. Time is virtual: a `(wait :seconds 3600)` takes no real time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from dodona.core.errors import DodonaError, LoadError, as_text, did_you_mean
from dodona.lisp import Form, Keyword, List, Literal, Map, Span, read_file, to_text
from dodona.trees.language.expressions import load_error, to_data
from dodona.trees.language.loader import Loader, LoadResult
from dodona.trees.language.schema import describe, values_equal
from dodona.trees.language.tree import Tree
from dodona.trees.runtime.registry import Registry
from dodona.trees.runtime.run import Options, Outcome, Run
from dodona.trees.runtime.watchdog import Watchdog
from dodona.trees.tooling.scripted import ScriptedRegistry, parse_scripts
from dodona.trees.tooling.virtual_time import VirtualTimeLoop

_TEST_KEYS = ("tree", "given", "leaves", "expect")
_EXPECTATIONS: Mapping[str, type] = {
    "status": str,
    "blackboard": dict,
    "calls": dict,
    "order": list,
    "never": list,
    "error": str,
}
_TYPE_NAMES = {str: "a word", dict: "a map", list: "a vector"}
# A test that takes longer than this (virtual) time is stuck.
_VIRTUAL_TIMEOUT_SECONDS = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class TestResult:
    """The result of one test."""

    name: str
    where: str
    failures: tuple[str, ...]
    seconds: float

    @property
    def passed(self) -> bool:
        return not self.failures


def test_files(path: Path) -> list[Path]:
    """Return a tree file and its test file in the same folder: `inbox.lisp`, `inbox.test.lisp`.

    Either of them names both. A file that is missing is left out, unless it is the named one.
    """
    if path.stem.endswith(".test"):
        tree, test = path.with_name(path.stem.removesuffix(".test") + path.suffix), path
    else:
        tree, test = path, path.with_name(f"{path.stem}.test{path.suffix}")
    return [each for each in (tree, test) if each == path or each.exists()]


def run_tests(paths: Sequence[Path], registry: Registry) -> Iterator[TestResult]:
    """Run every test in these files, in order. Raise ReadError for a file that does not parse."""
    forms: list[Form] = [form for path in paths for form in read_file(path)]
    for form in forms:
        if _is_test(form):
            assert isinstance(form, List)
            yield _run_test(form, forms, registry)


def check_tests(forms: Sequence[List]) -> list[DodonaError]:
    """Return the problems in the tests themselves, without running them."""
    problems: list[DodonaError] = []
    for form in forms:
        try:
            _TestCase(form)
        except DodonaError as error:
            problems.append(error)
    return problems


def _is_test(form: Form) -> bool:
    return isinstance(form, List) and bool(form.items) and to_text(form.items[0]) == "test"


def _run_test(form: List, forms: list[Form], registry: Registry) -> TestResult:
    started_at = perf_counter()
    name_form = form.items[1] if len(form.items) > 1 else None
    name = str(name_form.value) if isinstance(name_form, Literal) else "?"
    try:
        failures = _TestCase(form).run(forms, registry)
    except DodonaError as error:
        failures = [as_text(error)]
    return TestResult(name, str(form.span), tuple(failures), perf_counter() - started_at)


class _TestCase:
    """One test, parsed and validated."""

    def __init__(self, form: List) -> None:
        parts = _parse_parts(form)
        self.location = form.span.location()
        self.tree = _parse_string(parts["tree"]) if "tree" in parts else None
        self.values = _parse_map(parts.get("given"), "given")
        self.expect = _parse_map(parts.get("expect"), "expect")
        self.scripts = parse_scripts(parts["leaves"]) if "leaves" in parts else {}
        if not self.expect:
            raise load_error(form, "the test expects nothing.", "Add :expect.")
        for word in self.expect:
            if word not in _EXPECTATIONS:
                raise load_error(
                    parts["expect"],
                    f"':expect' has no ':{word}'.",
                    did_you_mean(word, _EXPECTATIONS)
                    or f"It takes {' '.join(':' + w for w in _EXPECTATIONS)}.",
                )
            if word == "status" and self.expect[word] not in ("success", "failure"):
                raise load_error(
                    parts["expect"],
                    "':status' is :success or :failure.",
                    did_you_mean(str(self.expect[word]), ("success", "failure"))
                    or "Write :status :success.",
                )
            kind = _EXPECTATIONS[word]
            if not isinstance(self.expect[word], kind):
                raise load_error(
                    parts["expect"],
                    f"':{word}' takes {_TYPE_NAMES[kind]} (got {describe(self.expect[word])}).",
                    "See: docs/how-to/test-trees.md",
                )

    def run(self, forms: list[Form], registry: Registry) -> list[str]:
        calls: list[str] = []
        scripted = ScriptedRegistry(registry, self.scripts, calls.append)
        loaded = Loader(scripted, host_keys=self.values).load(forms)
        tree = self._select_tree(loaded)
        self._check_leaf_names(loaded)
        options = Options(watchdog=Watchdog(_VIRTUAL_TIMEOUT_SECONDS))
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            outcome = runner.run(Run(tree, self.values, options).execute())
        return list(self._compare_outcome(outcome, calls))

    def _select_tree(self, loaded: LoadResult) -> Tree:
        first = loaded.main_tree()
        if self.tree is None:
            return first
        if self.tree not in loaded.trees:
            near = did_you_mean(self.tree, loaded.trees)
            raise LoadError(f'there is no tree "{self.tree}".', where=self.location, hint=near)
        return loaded.trees[self.tree]

    def _check_leaf_names(self, loaded: LoadResult) -> None:
        """Raise LoadError for a leaf that no tree calls: an expectation of it could not fail."""
        nodes = [node for tree in loaded.trees.values() for node in tree.nodes()]
        names = {node.leaf.name for node in nodes if node.leaf is not None}
        names |= {node.decoration.name for node in nodes if node.decoration is not None}
        expected = [*self.scripts, *self.expect.get("calls", ())]
        expected += [*self.expect.get("order", ()), *self.expect.get("never", ())]
        for name in expected:
            if name not in names and name != "default":
                raise LoadError(
                    f"no tree calls a leaf '{name}'.",
                    where=self.location,
                    hint=did_you_mean(name, names) or "Remove it from the test.",
                )

    def _compare_outcome(self, outcome: Outcome, calls: list[str]) -> Iterator[str]:
        expect, counts = self.expect, Counter(calls)
        if "status" in expect and expect["status"] != outcome.status.value:
            reason = f" ({outcome.error['message']})" if outcome.error else ""
            yield f"status: expected {expect['status']}, got {outcome.status}{reason}"
        for key, expected in expect.get("blackboard", {}).items():
            if key not in outcome.blackboard:
                near = did_you_mean(key, outcome.blackboard)
                yield f"blackboard :{key}: there is no such key. {near}".rstrip()
                continue
            actual = outcome.blackboard[key]
            if not values_equal(actual, expected):
                yield f"blackboard :{key}: expected {expected!r}, got {actual!r}"
        for leaf, expected in expect.get("calls", {}).items():
            if counts[leaf] != expected:
                yield f"calls to {leaf}: expected {expected}, got {counts[leaf]}"
        for leaf in expect.get("never", ()):
            if counts[leaf]:
                yield f"{leaf} was called {counts[leaf]} times, but should never be called"
        yield from self._compare_order(calls)
        expected = expect.get("error")
        message = outcome.error["message"] if outcome.error else ""
        if expected is not None and expected not in message:
            yield f"error: expected a message with {expected!r}, got {message!r}"

    def _compare_order(self, calls: list[str]) -> Iterator[str]:
        """Compare the calls of the leaves in :order; calls of other leaves are ignored."""
        order: list[str] = self.expect.get("order", [])
        actual = [leaf for leaf in calls if leaf in order]
        if order and actual != order:
            yield f"order: expected {' → '.join(order)}, got {' → '.join(actual) or 'nothing'}"


def _parse_parts(form: List) -> dict[str, Form]:
    items = form.items
    if len(items) < 2 or not isinstance(items[1], Literal) or not isinstance(items[1].value, str):
        raise load_error(form, "a test needs a name.", '(test "name" …)')
    parts: dict[str, Form] = {}
    rest = iter(items[2:])
    for item in rest:
        if not isinstance(item, Keyword) or item.name not in _TEST_KEYS:
            raise _unknown_part_error(item.span, item)
        value = next(rest, None)
        if value is None:
            raise load_error(item, f"':{item.name}' has no value.")
        if item.name in parts:
            raise load_error(item, f"':{item.name}' is given twice.", "Remove one of them.")
        parts[item.name] = value
    return parts


def _unknown_part_error(span: Span, item: Form) -> LoadError:
    near = did_you_mean(item.name, _TEST_KEYS) if isinstance(item, Keyword) else ""
    return LoadError(
        f"'test' does not take {to_text(item)[:40]} here.",
        where=span.location(),
        hint=near or f"It takes {' '.join(':' + word for word in _TEST_KEYS)}.",
    )


def _parse_string(form: Form) -> str:
    if isinstance(form, Literal) and isinstance(form.value, str):
        return form.value
    raise load_error(form, "':tree' takes a string.", 'Write :tree "name".')


def _parse_map(form: Form | None, word: str) -> dict[str, Any]:
    if form is None:
        return {}
    if not isinstance(form, Map):
        raise load_error(form, f"':{word}' takes a map.")
    return to_data(form)
