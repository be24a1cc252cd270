"""The rules of the code base that no linter knows. CONTRIBUTING.md explains them."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import App

from dodona.cli.main import app
from tests.style.prose import READ_BY_PEOPLE, ROOT, odd_sentences

SOURCE = ROOT / "src" / "dodona"
MAX_MODULES = 16
MAX_SMALL_MODULES = 15
SMALL = 40  # lines

# Folders with one kind of thing per file.
LARGE_FOLDERS = {
    "trees/nodes": "one kind of node per file",
}
# Classes of the same name in two modules, and why. At most fifteen.
SAME_NAME: dict[str, str] = {}


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    files = {file: file.relative_to(SOURCE.parent).with_suffix("") for file in SOURCE.rglob("*.py")}
    return {".".join(name.parts).removesuffix(".__init__"): file for file, name in files.items()}


def parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text("utf-8"))


def test_a_class_name_is_defined_once() -> None:
    """A reader who greps for a class finds one definition, unless the reason is listed."""
    places = defaultdict[str, list[str]](list)
    for name, file in modules().items():
        for node in parse(file).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(name)
    twice = {name: where for name, where in places.items() if len(where) > 1}
    assert {name: twice[name] for name in twice.keys() - SAME_NAME.keys()} == {}
    assert SAME_NAME.keys() - twice.keys() == set(), "listed, but defined once"
    assert len(SAME_NAME) <= 15


def test_folders_are_small() -> None:
    """A folder is a concept of ARCHITECTURE.md, with at most sixteen modules."""
    sizes = {
        folder.relative_to(SOURCE).as_posix(): len([*folder.glob("*.py")]) - 1
        for folder in SOURCE.rglob("*")
        if (folder / "__init__.py").exists()
    }
    assert {name for name, size in sizes.items() if size > MAX_MODULES} == LARGE_FOLDERS.keys()


def test_few_modules_are_tiny() -> None:
    """A module under forty lines with one importer belongs into that one; migrations have none."""
    tiny = [
        file.relative_to(SOURCE).as_posix()
        for file in SOURCE.rglob("*.py")
        if file.name != "__init__.py"
        and file.parent.name != "versions"
        and len(file.read_text("utf-8").splitlines()) < SMALL
    ]
    assert len(tiny) <= MAX_SMALL_MODULES, sorted(tiny)


def runtime_imports(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports that are executed when a module is loaded."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from runtime_imports(node.orelse)
        elif isinstance(node, ast.If | ast.Try):
            yield from runtime_imports([*node.body, *node.orelse])


def import_graph() -> dict[str, set[str]]:
    known = modules()
    graph: dict[str, set[str]] = {}
    for name, file in known.items():
        graph[name] = set()
        for node in runtime_imports(parse(file).body):
            names = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom):
                names = [
                    full if (full := f"{node.module}.{each}") in known else str(node.module)
                    for each in names
                ]
            graph[name] |= {each for each in names if each in known and each != name}
    return graph


def test_imports_have_no_cycle() -> None:
    """Modules can be loaded in some order, without a function-level import to help."""
    left = import_graph()
    while free := {name for name, needed in left.items() if not needed & left.keys()}:
        left = {name: needed for name, needed in left.items() if name not in free}
    assert left == {}


def public_functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Functions on module level whose name is public."""
    for name, file in modules().items():
        if "migrations" not in name:
            for node in parse(file).body:
                is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                if is_function and not node.name.startswith("_") and not is_overload(node):
                    yield name, node


def is_overload(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return "overload" in [ast.unparse(each) for each in node.decorator_list]


def test_public_functions_have_a_docstring() -> None:
    """What a module offers to others says what it does."""
    assert [f"{name}.{node.name}" for name, node in public_functions() if not has_doc(node)] == []


def has_doc(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return ast.get_docstring(node) is not None


def help_texts(command: App) -> Iterator[str]:
    yield str(command.help)
    for word in command:
        if not word.startswith("-"):
            yield from help_texts(command[word])


@pytest.mark.slow
def test_people_read_plain_english() -> None:
    """Documentation, help, errors, docstrings and comments use the words of the field."""
    assert odd_sentences([ROOT / name for name in READ_BY_PEOPLE]) == []


def test_help_begins_with_a_sentence() -> None:
    """The list of commands shows the first sentence of each docstring, whole."""
    assert [text for text in help_texts(app) if not text.split("\n")[0].endswith(".")] == []
