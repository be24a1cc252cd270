"""`dodona tree`: check, show, run, trace and test trees."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter, validators

from dodona.app.extensions.python_file import load_python_file
from dodona.cli.arguments import AsJson, BlackboardPairs, Leaves, TreeFile, sort_files
from dodona.cli.terminal import tree_run
from dodona.cli.terminal.output import print_json, print_note, print_text
from dodona.core import errors
from dodona.core.errors import LoadError, SourceLocation, UntrustedConfig
from dodona.core.extensions import Extension, extensions_in
from dodona.trees import Registry
from dodona.trees.language.loader import LoadResult, load_files
from dodona.trees.language.tree import Tree
from dodona.trees.nodes import KINDS
from dodona.trees.tooling import show
from dodona.trees.tooling.testing import TestResult, check_tests, run_tests, test_files

app = App(name="tree", help="Check, show, run, trace and test trees.")

TreeName = Annotated[
    str | None,
    Parameter(name="--tree", help="Name of the tree in the file. Defaults to the first."),
]


def load_trees(trees: tuple[Path, ...], leaves: tuple[Path, ...]) -> LoadResult:
    """Load leaf files, then tree files, ready to run."""
    return load_files(trees, registry=_build_registry(Registry(KINDS), leaves))


def read_trees(trees: tuple[Path, ...], leaves: tuple[Path, ...]) -> LoadResult:
    """Load trees to show or check, with the agent's leaves and those of the leaf files.

    A leaf of a file replaces the agent's leaf with the same name.
    """
    from dodona.agent.extensions import shipped_leaves  # noqa: PLC0415 - slow, and rarely needed

    return load_files(trees, registry=_build_registry(shipped_leaves(), leaves))


def _build_registry(base: Registry, leaf_files: Iterable[Path]) -> Registry:
    """Add the leaves of configured and installed extensions, then those of the files."""
    base.add(_configured_extensions())
    registry = Registry()
    registry.add(_load_files(leaf_files))
    return base.extended_with(registry)


def _configured_extensions() -> Iterator[Extension]:
    # Slow to import; commands that only print help do not need them.
    from dodona.app.config.config import load_config  # noqa: PLC0415
    from dodona.app.extensions.loading import ExtensionLoader  # noqa: PLC0415

    try:
        config = load_config(os.environ)
    except UntrustedConfig as error:
        print_note(f"extensions are not loaded: {errors.as_text(error)}")
        return iter(())
    return (each.extension for each in ExtensionLoader().load(config).items)


def _load_files(files: Iterable[Path]) -> Iterator[Extension]:
    for file in files:
        if not file.is_file():
            raise LoadError(f"file not found: {file}.", hint="--leaves takes Python files.")
        yield from extensions_in(vars(load_python_file(file)))


def pick_tree(loaded: LoadResult, path: Path, name: str | None) -> Tree:
    """Return the tree of this file with this name, or its main tree."""
    first = loaded.main_tree()
    if name is None:
        return first
    if name not in loaded.trees:
        names = ", ".join(loaded.trees)
        raise LoadError(
            f'there is no tree "{name}".',
            where=SourceLocation(str(path)),
            hint=f"Trees in the file: {names}.",
        )
    return loaded.trees[name]


@app.command
def check(*files: TreeFile, leaves: Leaves = (), json: AsJson = False) -> int:
    """Check tree files.

    All problems are reported at once. The exit code is 0 if there are none.
    """
    arguments = sort_files(files, leaves)
    loaded = read_trees(_with_tree_files(arguments.trees), arguments.leaves)
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


def _with_tree_files(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the files, and before each test file the file with its trees."""
    files = (test_files(path) if path.stem.endswith(".test") else [path] for path in paths)
    return tuple(dict.fromkeys(each for group in files for each in group))


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
    format: Annotated[  # noqa: A002 - the flag's name
        Literal["ascii", "mermaid", "json"], Parameter(help="Output format.")
    ] = "ascii",
    tree: TreeName = None,
    leaves: Leaves = (),
    json: AsJson = False,
) -> None:
    """Show a tree as an outline, a Mermaid flowchart or JSON."""
    arguments = sort_files(files, leaves)
    path = arguments.single_tree()
    selected = pick_tree(read_trees((path,), arguments.leaves), path, tree)
    if json or format == "json":
        print_json(show.as_json(selected))
    else:
        print_text(show.as_mermaid(selected) if format == "mermaid" else show.as_ascii(selected))


@app.command
def run(
    *files: TreeFile,
    settings: BlackboardPairs = (),
    leaves: Leaves = (),
    tree: TreeName = None,
    flags: Annotated[tree_run.TreeRunFlags | None, Parameter(name="*")] = None,
    json: AsJson = False,
) -> int:
    """Run a tree and print its output and final blackboard.

    The exit code is 0 if the tree succeeds.
    """
    arguments = sort_files(files, leaves, settings)
    path = arguments.single_tree()
    selected = pick_tree(load_trees((path,), arguments.leaves), path, tree)
    return tree_run.run_tree(
        selected, arguments.values, flags or tree_run.TreeRunFlags(), as_json=json
    )


@app.command
def trace(
    *files: TreeFile,
    settings: BlackboardPairs = (),
    leaves: Leaves = (),
    tree: TreeName = None,
    last: Annotated[
        int, Parameter(help="Number of ticks to show.", validator=validators.Number(gte=1))
    ] = 20,
    json: AsJson = False,
) -> int:
    """Run a tree and show its ticks and the time per node."""
    arguments = sort_files(files, leaves, settings)
    path = arguments.single_tree()
    selected = pick_tree(load_trees((path,), arguments.leaves), path, tree)
    return tree_run.trace_tree(selected, arguments.values, last=last, as_json=json)


@app.command
def test(*files: TreeFile, leaves: Leaves = (), json: AsJson = False) -> int:
    """Run the tests of tree files.

    Tests of NAME.lisp are in that file and in NAME.test.lisp; pass either. The exit code
    is 0 if all pass.
    """
    arguments = sort_files(files, leaves)
    registry = _build_registry(Registry(KINDS), arguments.leaves)
    # Many tests make a leaf raise. A failed test reports its own error.
    logging.getLogger("dodona.trees").setLevel(logging.CRITICAL)
    results: list[TestResult] = []
    for paths in dict.fromkeys(tuple(test_files(path)) for path in arguments.trees):
        for result in run_tests(paths, registry):
            results.append(result)
            if not json:
                _print_test_result(result)
    if not results:
        names = ", ".join(str(path) for path in arguments.trees)
        raise LoadError(f"no tests in {names}.", hint='Write (test "name" … :expect {…}).')
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
