"""From files to trees. A tree that loads can run; one that does not says all that is wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dodona.core.errors import DodonaError, LoadError, ReadError, did_you_mean
from dodona.lisp import Form, Keyword, List, Literal, Map, Quote, Symbol, Vector, read, read_file
from dodona.trees.language.expressions import starts_with
from dodona.trees.language.node import Node
from dodona.trees.language.parser import Parser
from dodona.trees.language.schema import NO_KEYS, Scope, article
from dodona.trees.language.tree import Tree
from dodona.trees.runtime.registry import Registry

MAX_FORM_DEPTH = 100
_TREE_WORDS = ("description", "blackboard-schema", "finally")


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a set of files holds: trees by name, in the order of the files, and their tests."""

    trees: Mapping[str, Tree]
    tests: tuple[List, ...] = ()
    problems: tuple[DodonaError, ...] = ()

    @property
    def warnings(self) -> list[LoadError]:
        return [warning for tree in self.trees.values() for warning in tree.warnings]

    def main(self) -> Tree:
        """The first tree; every mistake at once when there is one."""
        if self.problems:
            raise LoadError.gather(self.problems)
        if not self.trees:
            raise LoadError("there is no tree.", hint='Write (tree "name" …).')
        return next(iter(self.trees.values()))


def load(
    source: str | Path,
    *,
    registry: Registry,
    library: Mapping[str, Tree] | None = None,
    host_keys: Iterable[str] = (),
) -> Tree:
    """The first tree of a file, or of a text: a str with a parenthesis in it is one.

    `library` holds trees that subtrees may name; `host_keys` are put on the blackboard by the
    host and are so known.
    """
    is_text = isinstance(source, str) and "(" in source
    forms = read(str(source)) if is_text else read_file(Path(source))
    return Loader(registry, library, host_keys).load(forms).main()


def load_files(
    paths: Sequence[Path],
    *,
    registry: Registry,
    library: Mapping[str, Tree] | None = None,
    host_keys: Iterable[str] = (),
) -> Loaded:
    """All that these files hold, mistakes included. They may name each other's trees."""
    forms: list[Form] = []
    unreadable: list[DodonaError] = []
    for path in paths:
        try:
            forms.extend(read_file(path))
        except ReadError as error:
            unreadable.append(error)
    loaded = Loader(registry, library, host_keys).load(forms)
    return Loaded(loaded.trees, loaded.tests, (*unreadable, *loaded.problems))


@dataclass(slots=True)
class _Parts:
    name: Literal
    options: dict[str, Form] = field(default_factory=dict[str, Form])
    rest: list[Form] = field(default_factory=list[Form])


class Loader:
    """Loads a set of forms; trees are loaded when they are first named, so order is free."""

    def __init__(
        self,
        registry: Registry,
        library: Mapping[str, Tree] | None = None,
        host_keys: Iterable[str] = (),
    ) -> None:
        self._parser = Parser(registry, self._resolve)
        self._library = library or {}
        self._host_keys = frozenset(host_keys)
        self._drafts: dict[str, List] = {}
        self._trees: dict[str, Tree | None] = {}
        self._open: list[str] = []
        self._unresolved = 0

    def load(self, forms: Iterable[Form]) -> Loaded:
        tests: list[List] = []
        for form in forms:
            self._sort(form, tests)
        for name in self._drafts:
            self._tree(name)
        # In the order of the files, not in that of the references.
        found = {name: tree for name in self._drafts if (tree := self._trees[name]) is not None}
        problems = sorted(self._parser.problems, key=_position)
        return Loaded(found, tuple(tests), tuple(problems))

    def _wrong(self, form: Form, message: str, hint: str = "") -> None:
        self._parser.wrong(form.span, message, hint)

    def _sort(self, form: Form, tests: list[List]) -> None:
        """Top-level forms are trees and tests."""
        head = form.items[0] if isinstance(form, List) and form.items else None
        word = head.name if isinstance(head, Symbol) else ""
        if not isinstance(form, List) or word not in ("tree", "test"):
            self._wrong(
                head or form,
                "expected a tree at the top level.",
                did_you_mean(word, ["tree", "test"]) or 'Write (tree "name" …).',
            )
        elif _too_deep(form):
            self._wrong(form, f"forms are nested more than {MAX_FORM_DEPTH} deep.")
        elif word == "test":
            tests.append(form)
        else:
            self._announce(form)

    def _announce(self, form: List) -> None:
        name = form.items[1] if len(form.items) > 1 else None
        if not isinstance(name, Literal) or not isinstance(name.value, str) or not name.value:
            self._wrong(name or form, "a tree needs a name.", 'Write (tree "name" …).')
        elif name.value in self._drafts:
            first = self._drafts[name.value].span
            self._wrong(name, f'tree "{name.value}" exists already.', f"The first is at {first}.")
        else:
            self._drafts[name.value] = form
            self._unnest(name.value, form)

    def _unnest(self, name: str, form: List) -> None:
        """A tree inside a tree means a lost parenthesis: say that once, and nothing of the rest."""
        inner = [item for item in form.items[2:] if starts_with(item, "tree")]
        for tree in inner:
            self._sort(tree, [])
        if inner:
            self._trees[name] = None
            self._wrong(
                inner[0],
                f'this tree stands inside of tree "{name}".',
                "A parenthesis is missing before it.",
            )

    def _resolve(self, reference: Literal) -> Tree | None:
        """The tree that `(subtree "name")` means."""
        name = str(reference.value)
        if name in self._open:
            circle = " → ".join([*self._open[self._open.index(name) :], name])
            self._wrong(reference, f"subtrees go round in a circle: {circle}.", "Break it up.")
            return None
        if name in self._drafts:
            tree = self._tree(name)
            if tree is None:
                self._unresolved += 1  # its mistakes are noted, ours is only to name it
            return tree
        if name in self._library:
            return self._library[name]
        known = [*self._drafts, *self._library]
        self._wrong(
            reference,
            f'there is no tree "{name}".',
            did_you_mean(name, known) or "Name its file as well, or add it to this one.",
        )
        return None

    def _tree(self, name: str) -> Tree | None:
        if name in self._trees:
            return self._trees[name]
        form = self._drafts[name]
        if len(self._open) >= MAX_FORM_DEPTH:
            self._wrong(form, f"subtrees are nested more than {MAX_FORM_DEPTH} deep.")
            return None
        self._open.append(name)
        before = self._mistakes()
        tree = self._build(form)
        self._open.pop()
        if tree is not None and self._mistakes() == before:
            tree = self._compiled(tree)
        self._trees[name] = tree if self._mistakes() == before else None
        return self._trees[name]

    def _mistakes(self) -> int:
        return len(self._parser.problems) + self._unresolved

    def _compiled(self, tree: Tree) -> Tree | None:
        try:
            tree.program()
        except LoadError as error:
            self._parser.problems.append(error)
            return None
        self._check_shared_keys(tree)
        tree.warnings = tuple(self._unknown_keys(tree))
        return tree

    def _check_shared_keys(self, tree: Tree) -> None:
        """A key that two trees of one run share has one type."""
        for used in tree.uses():
            for name, key in used.schema.of(Scope.TREE, Scope.GLOBAL).keys.items():
                ours = tree.keys.keys[name]
                if ours.type != key.type and "any" not in (ours.type, key.type):
                    self._wrong(
                        tree.form.items[1],
                        f"key ':{name}' is {article(ours.type)} here, and {article(key.type)} in "
                        f'tree "{used.name}".',
                        "Give it one type, or :scope :subtree.",
                    )

    def _build(self, form: List) -> Tree | None:
        parts = self._parts(form)
        schema = NO_KEYS
        if "blackboard-schema" in parts.options:
            schema = self._parser.schemas.read(parts.options["blackboard-schema"], Scope.TREE)
        final = parts.options.get("finally")
        ending = self._parser.node(final) if final is not None else None
        root = self._root(parts, form)
        if root is None:
            return None
        return Tree(
            name=str(parts.name.value),
            form=form,
            root=root,
            description=self._description(parts),
            schema=schema,
            final=ending,
        )

    def _description(self, parts: _Parts) -> str:
        form = parts.options.get("description")
        if form is None:
            return ""
        if isinstance(form, Literal) and isinstance(form.value, str):
            return form.value
        self._wrong(form, "':description' takes a string.", 'Write :description "…".')
        return ""

    def _parts(self, form: List) -> _Parts:
        name = form.items[1]
        assert isinstance(name, Literal)
        parts = _Parts(name)
        items = iter(form.items[2:])
        for item in items:
            if not isinstance(item, Keyword):
                parts.rest.append(item)
            elif item.name not in _TREE_WORDS:
                self._wrong(
                    item,
                    f"'tree' has no keyword ':{item.name}'.",
                    did_you_mean(f":{item.name}", [f":{word}" for word in _TREE_WORDS])
                    or f"It takes {' '.join(':' + word for word in _TREE_WORDS)}.",
                )
                next(items, None)
            elif (value := next(items, None)) is None:
                self._wrong(item, f"':{item.name}' has no value.", "Add one, or remove it.")
            elif item.name in parts.options:
                self._wrong(item, f"':{item.name}' is given twice.", "Remove one of them.")
            else:
                parts.options[item.name] = value
        return parts

    def _root(self, parts: _Parts, form: List) -> Node | None:
        if not parts.rest:
            self._wrong(form.items[0], f'tree "{parts.name.value}" has no node.', "Add one.")
            return None
        if len(parts.rest) > 1:
            self._wrong(
                parts.rest[1],
                f'tree "{parts.name.value}" takes one node (got {len(parts.rest)}).',
                "Put them into a (sequence …). Or is a parenthesis in the wrong place?",
            )
        nodes = [self._parser.node(item) for item in parts.rest]
        return nodes[0]

    def _unknown_keys(self, tree: Tree) -> Iterable[LoadError]:
        """Keys that nobody declares: perhaps misspelt, so a warning."""
        known = set(tree.keys.keys) | self._host_keys
        for used in (tree, *tree.uses()):
            for node in used.nodes():
                known.update(node.schema.keys)
                leaf = node.decoration.enter if node.decoration is not None else node.leaf
                if leaf is not None:
                    known.update(leaf.reads, leaf.writes)
        seen: set[str] = set()
        for node in tree.nodes():
            for key, span in _mentioned(node):
                if key not in known and key not in seen:
                    seen.add(key)
                    yield LoadError(
                        f"key ':{key}' is in no schema.",
                        where=span.where(),
                        hint=did_you_mean(key, known) or "Declare it in :blackboard-schema.",
                    )


def _mentioned(node: Node) -> Iterable[tuple[str, Any]]:
    for expression in node.expressions():
        yield from expression.reads
    if node.kind.writes_options:
        yield from ((key, node.span) for key in node.options)


def _position(problem: LoadError) -> tuple[str, int, int]:
    where = problem.where
    return (where.file, where.line, where.column) if where else ("", 0, 0)


def _too_deep(form: Form) -> bool:
    level: list[Form] = [form]
    for _ in range(MAX_FORM_DEPTH):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return False
    return True


def _inside(form: Form) -> Iterable[Form]:
    if isinstance(form, List | Vector):
        return form.items
    if isinstance(form, Map):
        return [part for pair in form.pairs for part in pair]
    return [form.form] if isinstance(form, Quote) else ()
