"""A tree that has been loaded: it can run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256

from dodona.core.errors import LoadError
from dodona.lisp import List, to_text
from dodona.trees.language.node import Node
from dodona.trees.language.schema import EMPTY_SCHEMA, Schema, Scope, merge_shared_keys
from dodona.trees.runtime.program import Instrument, Program, compile_tree


@dataclass(eq=False)
class Tree:
    """Immutable once loaded; a run keeps the one it began with, whatever is loaded later."""

    name: str
    form: List
    root: Node
    description: str = ""
    schema: Schema = EMPTY_SCHEMA
    finally_node: Node | None = None
    warnings: tuple[LoadError, ...] = ()
    _programs: dict[Instrument | None, Program] = field(
        default_factory=dict[Instrument | None, Program], repr=False
    )

    def program(self, instrument: Instrument | None = None) -> Program:
        """The tree as closures; each way of looking at it is compiled once."""
        found = self._programs.get(instrument)
        if found is None:
            found = compile_tree(self.root, self.finally_node, instrument)
            self._programs[instrument] = found
        return found

    @cached_property
    def run_schema(self) -> Schema:
        """What a run's blackboard holds: our keys, and those that the trees we use share."""
        shared = merge_shared_keys([self.schema, *(tree.schema for tree in self.used_trees())])
        return self.schema.for_scopes(Scope.SUBTREE).merge(shared)

    @cached_property
    def global_keys(self) -> tuple[str, ...]:
        """Those whose values outlive a run."""
        return tuple(self.run_schema.for_scopes(Scope.GLOBAL).keys)

    @cached_property
    def digest(self) -> str:
        """The same for the same behaviour: the text without comments, and that of all it uses."""
        whole = sha256(to_text(self.form).encode())
        for tree in sorted(self.used_trees(), key=lambda tree: tree.name):
            whole.update(to_text(tree.form).encode())
        return whole.hexdigest()

    def nodes(self) -> Iterator[Node]:
        """The nodes of this very tree, :finally included."""
        yield from self.root.walk()
        if self.finally_node is not None:
            yield from self.finally_node.walk()

    def used_trees(self) -> list[Tree]:
        """The trees named below this one, each once."""
        found: dict[str, Tree] = {}
        pending: list[Tree] = [self]
        while pending:
            for node in pending.pop().nodes():
                if node.tree is not None and node.tree.name not in found:
                    found[node.tree.name] = node.tree
                    pending.append(node.tree)
        return list(found.values())
