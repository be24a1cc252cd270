"""Loads trees from files. A tree that loads can run; otherwise all problems are reported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dodona.core.errors import DodonaError, LoadError, ReadError, SourceLocation, did_you_mean
from dodona.lisp import Form, Keyword, List, Literal, Symbol, read, read_file
from dodona.lisp.forms import children
from dodona.trees.language.expressions import starts_with
from dodona.trees.language.node import Node
from dodona.trees.language.parser import Parser
from dodona.trees.language.schema import EMPTY_SCHEMA, Scope, with_article
from dodona.trees.language.tree import Tree
from dodona.trees.runtime.registry import Registry

MAX_FORM_DEPTH = 100
_TREE_OPTIONS = ("description", "blackboard-schema", "finally")


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The content of a set of files: trees by name, in file order, tests and problems."""

    trees: Mapping[str, Tree]
    tests: tuple[List, ...] = ()
    problems: tuple[DodonaError, ...] = ()

    @property
    def warnings(self) -> list[LoadError]:
        return [warning for tree in self.trees.values() for warning in tree.warnings]

    def main_tree(self) -> Tree:
        """Return the first tree. Raise one LoadError with all problems if there are any."""
        if self.problems:
            raise LoadError.combine(self.problems)
        if not self.trees:
            raise _no_tree_error(self.tests[0].span.location() if self.tests else None)
        return next(iter(self.trees.values()))


def load(source: str | Path, *, registry: Registry, host_keys: Iterable[str] = ()) -> Tree:
    """Load the first tree of a file, or of source text if the str contains a parenthesis.

    `host_keys` are the blackboard keys that the host sets; they need no declaration.
    """
    if isinstance(source, str) and "(" in source:
        return Loader(registry, host_keys).load(read(source)).main_tree()
    return load_files([Path(source)], registry=registry, host_keys=host_keys).main_tree()


def load_files(
    paths: Sequence[Path], *, registry: Registry, host_keys: Iterable[str] = ()
) -> LoadResult:
    """Load all trees and tests of these files. The files may refer to each other's trees."""
    forms: list[Form] = []
    unusable: list[DodonaError] = []
    for path in paths:
        try:
            content = read_file(path)
        except ReadError as error:
            unusable.append(error)
        else:
            forms.extend(content)
            if not content:
                unusable.append(_no_tree_error(SourceLocation(str(path))))
    loaded = Loader(registry, host_keys).load(forms)
    return LoadResult(loaded.trees, loaded.tests, (*unusable, *loaded.problems))


def _no_tree_error(where: SourceLocation | None) -> LoadError:
    return LoadError("there is no tree.", where=where, hint='Write (tree "name" …).')


@dataclass(slots=True)
class _TreeParts:
    name: Literal
    options: dict[str, Form] = field(default_factory=dict[str, Form])
    body: list[Form] = field(default_factory=list[Form])


class Loader:
    """Loads a set of forms. Trees are loaded on first reference, so their order does not matter."""

    def __init__(self, registry: Registry, host_keys: Iterable[str] = ()) -> None:
        self._parser = Parser(registry, self._resolve)
        self._host_keys = frozenset(host_keys)
        self._tree_forms: dict[str, List] = {}
        self._trees: dict[str, Tree | None] = {}
        self._loading: list[str] = []
        self._unresolved_count = 0

    def load(self, forms: Iterable[Form]) -> LoadResult:
        tests: list[List] = []
        for form in forms:
            self._register_form(form, tests)
        for name in self._tree_forms:
            self._load_tree(name)
        # In file order, not in the order of references.
        trees = {name: tree for name in self._tree_forms if (tree := self._trees[name]) is not None}
        problems = sorted(self._parser.problems, key=_position)
        return LoadResult(trees, tuple(tests), tuple(problems))

    def _add_problem(self, form: Form, message: str, hint: str = "") -> None:
        self._parser.add_problem(form.span, message, hint)

    def _register_form(self, form: Form, tests: list[List]) -> None:
        """Register a top-level form, which must be a tree or a test."""
        head = form.items[0] if isinstance(form, List) and form.items else None
        word = head.name if isinstance(head, Symbol) else ""
        if not isinstance(form, List) or word not in ("tree", "test"):
            self._add_problem(
                head or form,
                "expected a tree at the top level.",
                did_you_mean(word, ["tree", "test"]) or 'Write (tree "name" …).',
            )
        elif _is_too_deep(form):
            self._add_problem(form, f"forms are nested more than {MAX_FORM_DEPTH} deep.")
        elif word == "test":
            tests.append(form)
        else:
            self._register_tree(form)

    def _register_tree(self, form: List) -> None:
        name = form.items[1] if len(form.items) > 1 else None
        if not isinstance(name, Literal) or not isinstance(name.value, str) or not name.value:
            self._add_problem(name or form, "a tree needs a name.", 'Write (tree "name" …).')
        elif name.value in self._tree_forms:
            first = self._tree_forms[name.value].span
            self._add_problem(
                name, f'tree "{name.value}" already exists.', f"The first is at {first}."
            )
        else:
            self._tree_forms[name.value] = form
            self._handle_nested_trees(name.value, form)

    def _handle_nested_trees(self, name: str, form: List) -> None:
        """Report a tree inside a tree as a missing parenthesis, and only that."""
        inner = [item for item in form.items[2:] if starts_with(item, "tree")]
        for tree in inner:
            self._register_form(tree, [])
        if inner:
            self._trees[name] = None
            self._add_problem(
                inner[0],
                f'this tree is inside tree "{name}".',
                "A parenthesis is missing before it.",
            )

    def _resolve(self, reference: Literal) -> Tree | None:
        """Return the tree that `(subtree "name")` refers to."""
        name = str(reference.value)
        if name in self._loading:
            cycle = " → ".join([*self._loading[self._loading.index(name) :], name])
            self._add_problem(
                reference, f"subtrees form a cycle: {cycle}.", "Remove one of the references."
            )
            return None
        if name in self._tree_forms:
            tree = self._load_tree(name)
            if tree is None:
                self._unresolved_count += 1  # its problems are already in the list
            return tree
        self._add_problem(
            reference,
            f'there is no tree "{name}".',
            did_you_mean(name, self._tree_forms)
            or "Pass its file as well, or add the tree to this file.",
        )
        return None

    def _load_tree(self, name: str) -> Tree | None:
        if name in self._trees:
            return self._trees[name]
        form = self._tree_forms[name]
        if len(self._loading) >= MAX_FORM_DEPTH:
            self._add_problem(form, f"subtrees are nested more than {MAX_FORM_DEPTH} deep.")
            return None
        self._loading.append(name)
        before = self._problem_count()
        tree = self._build_tree(form)
        self._loading.pop()
        if tree is not None and self._problem_count() == before:
            tree = self._compile_tree(tree)
        self._trees[name] = tree if self._problem_count() == before else None
        return self._trees[name]

    def _problem_count(self) -> int:
        return len(self._parser.problems) + self._unresolved_count

    def _compile_tree(self, tree: Tree) -> Tree | None:
        try:
            tree.program()
        except LoadError as error:
            self._parser.problems.append(error)
            return None
        self._check_shared_keys(tree)
        tree.warnings = tuple(self._find_unknown_keys(tree))
        return tree

    def _check_shared_keys(self, tree: Tree) -> None:
        """Check that a key shared by two trees of a run has the same type in both."""
        for used in tree.used_trees():
            for name, key in used.schema.for_scopes(Scope.TREE, Scope.GLOBAL).keys.items():
                ours = tree.run_schema.keys[name]
                if ours.type != key.type and "any" not in (ours.type, key.type):
                    self._add_problem(
                        tree.form.items[1],
                        f"key ':{name}' is {with_article(ours.type)} here, and "
                        f'{with_article(key.type)} in tree "{used.name}".',
                        "Give it one type, or :scope :subtree.",
                    )

    def _build_tree(self, form: List) -> Tree | None:
        parts = self._parse_parts(form)
        schema = EMPTY_SCHEMA
        if "blackboard-schema" in parts.options:
            schema = self._parser.schema_parser.parse(
                parts.options["blackboard-schema"], Scope.TREE
            )
        final = parts.options.get("finally")
        finally_node = self._parser.parse_node(final) if final is not None else None
        root = self._parse_root(parts, form)
        if root is None:
            return None
        return Tree(
            name=str(parts.name.value),
            form=form,
            root=root,
            description=self._parse_description(parts),
            schema=schema,
            finally_node=finally_node,
        )

    def _parse_description(self, parts: _TreeParts) -> str:
        form = parts.options.get("description")
        if form is None:
            return ""
        if isinstance(form, Literal) and isinstance(form.value, str):
            return form.value
        self._add_problem(form, "':description' takes a string.", 'Write :description "…".')
        return ""

    def _parse_parts(self, form: List) -> _TreeParts:
        name = form.items[1]
        assert isinstance(name, Literal)
        parts = _TreeParts(name)
        items = iter(form.items[2:])
        for item in items:
            if not isinstance(item, Keyword):
                parts.body.append(item)
            elif item.name not in _TREE_OPTIONS:
                self._add_problem(
                    item,
                    f"'tree' has no keyword ':{item.name}'.",
                    did_you_mean(f":{item.name}", [f":{word}" for word in _TREE_OPTIONS])
                    or f"It takes {' '.join(':' + word for word in _TREE_OPTIONS)}.",
                )
                next(items, None)
            elif (value := next(items, None)) is None:
                self._add_problem(item, f"':{item.name}' has no value.", "Add one, or remove it.")
            elif item.name in parts.options:
                self._add_problem(item, f"':{item.name}' is given twice.", "Remove one of them.")
            else:
                parts.options[item.name] = value
        return parts

    def _parse_root(self, parts: _TreeParts, form: List) -> Node | None:
        if not parts.body:
            self._add_problem(form.items[0], f'tree "{parts.name.value}" has no node.', "Add one.")
            return None
        if len(parts.body) > 1:
            self._add_problem(
                parts.body[1],
                f'tree "{parts.name.value}" takes one node (got {len(parts.body)}).',
                "Put them into a (sequence …). Or is a parenthesis in the wrong place?",
            )
        nodes = [self._parser.parse_node(item) for item in parts.body]
        return nodes[0]

    def _find_unknown_keys(self, tree: Tree) -> Iterable[LoadError]:
        """Yield a warning for each undeclared key, which may be misspelt."""
        declared = set(tree.run_schema.keys) | self._host_keys
        for used in (tree, *tree.used_trees()):
            for node in used.nodes():
                declared.update(node.schema.keys)
                leaf = node.decoration.enter if node.decoration is not None else node.leaf
                if leaf is not None:
                    declared.update(leaf.reads, leaf.writes)
        reported: set[str] = set()
        for node in tree.nodes():
            for key, span in _mentioned_keys(node):
                if key not in declared and key not in reported:
                    reported.add(key)
                    yield LoadError(
                        f"key ':{key}' is not in any schema.",
                        where=span.location(),
                        hint=did_you_mean(key, declared) or "Declare it in :blackboard-schema.",
                    )


def _mentioned_keys(node: Node) -> Iterable[tuple[str, Any]]:
    for expression in node.expressions():
        yield from expression.reads
    if node.kind.writes_options:
        yield from ((key, node.span) for key in node.options)


def _position(problem: LoadError) -> tuple[str, int, int]:
    where = problem.where
    return (where.file, where.line, where.column) if where else ("", 0, 0)


def _is_too_deep(form: Form) -> bool:
    level: list[Form] = [form]
    for _ in range(MAX_FORM_DEPTH):
        level = [inner for outer in level for inner in children(outer)]
        if not level:
            return False
    return True
