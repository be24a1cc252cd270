"""`dodona tree`: trees are data, and these commands read, run and test them."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter, validators

from dodona.cli.arguments import AsJson, BlackboardPairs, Leaves, TreeFile, sort_files
from dodona.cli.terminal import tree_run
from dodona.cli.terminal.output import print_json, print_note, print_text
from dodona.cli.terminal.tree_run import load_leaves
from dodona.core import errors
from dodona.core.errors import LoadError
from dodona.trees import registry
from dodona.trees.language.loader import LoadResult, load_files
from dodona.trees.language.tree import Tree
from dodona.trees.tooling import show
from dodona.trees.tooling.testing import TestResult, check_tests, run_tests, test_files

app = App(name="tree", help="Check, show, run, trace and test trees.")

TreeName = Annotated[
    str | None, Parameter(name="--tree", help="Which tree of the file; the first if left out.")
]


def load_trees(trees: tuple[Path, ...], leaves: tuple[Path, ...]) -> LoadResult:
    load_leaves(leaves)
    return load_files(trees, registry=registry)


def read_trees(trees: tuple[Path, ...], leaves: tuple[Path, ...]) -> LoadResult:
    """To look at, not to run: without files of leaves, the agent's own are known."""
    if leaves:
        return load_trees(trees, leaves)
    from dodona.agent.leaves import REGISTRY  # noqa: PLC0415 - few look at the agent's own trees

    return load_files(trees, registry=REGISTRY)


def pick_tree(loaded: LoadResult, name: str | None) -> Tree:
    first = loaded.main_tree()
    if name is None:
        return first
    if name not in loaded.trees:
        names = ", ".join(loaded.trees)
        raise LoadError(f'there is no tree "{name}".', hint=f"The file has: {names}.")
    return loaded.trees[name]


@app.command
def check(*files: TreeFile, leaves: Leaves = (), json: AsJson = False) -> int:
    """Load trees and tell every mistake at once; exit 0 when there is none."""
    given = sort_files(files, leaves)
    loaded = read_trees(given.trees, given.leaves)
    if not loaded.problems and not loaded.trees:
        loaded.main_tree()
    loaded = replace(loaded, problems=(*loaded.problems, *check_tests(loaded.tests)))
    if json:
        print_json(_report_json(loaded))
    else:
        for problem in loaded.problems:
            print_note(errors.as_text(problem))
        for warning in loaded.warnings:
            print_note(f"warning: {errors.as_text(warning)}")
        for tree in loaded.trees.values():
            if not loaded.problems:
                print_text(f"ok: {tree.name}, {len(tree.program().places)} nodes")
    return 1 if loaded.problems else 0


def _report_json(loaded: LoadResult) -> dict[str, Any]:
    return {
        "ok": not loaded.problems,
        "errors": [errors.as_json(problem)["error"] for problem in loaded.problems],
        "warnings": [errors.as_json(warning)["error"] for warning in loaded.warnings],
        "trees": [
            {"name": tree.name, "nodes": len(tree.program().places), "digest": tree.digest}
            for tree in loaded.trees.values()
        ],
    }


@app.command(name="show")
def show_tree(
    *files: TreeFile,
    format: Literal["ascii", "mermaid", "json"] = "ascii",  # noqa: A002 - the flag's name
    tree: TreeName = None,
    leaves: Leaves = (),
    json: AsJson = False,
) -> None:
    """Draw a tree: an outline, a Mermaid flowchart, or JSON."""
    given = sort_files(files, leaves)
    found = pick_tree(read_trees((given.single_tree(),), given.leaves), tree)
    if json or format == "json":
        print_json(show.as_json(found))
    else:
        print_text(show.as_mermaid(found) if format == "mermaid" else show.as_ascii(found))


@app.command
def run(
    *files: TreeFile,
    settings: BlackboardPairs = (),
    leaves: Leaves = (),
    tree: TreeName = None,
    flags: Annotated[tree_run.TreeRunFlags | None, Parameter(name="*")] = None,
    json: AsJson = False,
) -> int:
    """Run a tree and print what it says and knows in the end; exit 0 on success."""
    given = sort_files(files, leaves, settings)
    found = pick_tree(load_trees((given.single_tree(),), given.leaves), tree)
    return tree_run.run_tree(found, given.values, flags or tree_run.TreeRunFlags(), as_json=json)


@app.command
def trace(
    *files: TreeFile,
    settings: BlackboardPairs = (),
    leaves: Leaves = (),
    tree: TreeName = None,
    last: Annotated[
        int, Parameter(help="How many ticks to show.", validator=validators.Number(gte=1))
    ] = 20,
    json: AsJson = False,
) -> int:
    """Run a tree and show its ticks, node by node, and where the time went."""
    given = sort_files(files, leaves, settings)
    found = pick_tree(load_trees((given.single_tree(),), given.leaves), tree)
    return tree_run.trace_tree(found, given.values, last=last, as_json=json)


@app.command
def test(*files: TreeFile, leaves: Leaves = (), json: AsJson = False) -> int:
    """Run the tests in tree files and in FILE.test.lisp beside them; exit 0 when all pass."""
    given = sort_files(files, leaves)
    load_leaves(given.leaves)
    # A leaf that raises is part of many a test; a failed one tells its error itself.
    logging.getLogger("dodona.trees").setLevel(logging.CRITICAL)
    results: list[TestResult] = []
    for path in given.trees:
        for result in run_tests(test_files(path), registry):
            results.append(result)
            if not json:
                _print_test_result(result)
    if not results:
        names = ", ".join(str(path) for path in given.trees)
        raise LoadError(
            f"there are no tests in {names}.", hint='Write (test "name" … :expect {…}).'
        )
    failed = sum(not result.passed for result in results)
    if json:
        print_json(
            {"passed": len(results) - failed, "failed": failed, "tests": _tests_json(results)}
        )
    else:
        print_text(f"{len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


def _print_test_result(result: TestResult) -> None:
    print_text(f"{'ok    ' if result.passed else 'FAILED'}  {result.name}")
    for failure in result.failures:
        print_text("\n".join(f"        {line}" for line in failure.splitlines()))
    if result.failures:
        print_text(f"        at {result.where}")


def _tests_json(results: list[TestResult]) -> list[dict[str, Any]]:
    return [
        {
            "name": result.name,
            "where": result.where,
            "passed": result.passed,
            "failures": list(result.failures),
            "seconds": round(result.seconds, 6),
        }
        for result in results
    ]
