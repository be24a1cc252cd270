"""A loaded tree, ready to run."""

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
    """A loaded tree, immutable. A run keeps its tree even if a newer version is loaded."""

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
        """Return the compiled tree; it is compiled once for each instrument."""
        program = self._programs.get(instrument)
        if program is None:
            program = compile_tree(self.root, self.finally_node, instrument)
            self._programs[instrument] = program
        return program

    @cached_property
    def run_schema(self) -> Schema:
        """The schema of a run's blackboard: this tree's keys, and those shared by its subtrees."""
        shared = merge_shared_keys([self.schema, *(tree.schema for tree in self.used_trees())])
        return self.schema.for_scopes(Scope.SUBTREE).merge(shared)

    @cached_property
    def global_keys(self) -> tuple[str, ...]:
        """The keys whose values outlive a run."""
        return tuple(self.run_schema.for_scopes(Scope.GLOBAL).keys)

    @cached_property
    def digest(self) -> str:
        """A hash of the text without comments, including all trees that this tree uses."""
        digest = sha256(to_text(self.form).encode())
        for tree in sorted(self.used_trees(), key=lambda tree: tree.name):
            digest.update(to_text(tree.form).encode())
        return digest.hexdigest()

    def nodes(self) -> Iterator[Node]:
        """Yield the nodes of this tree including :finally, without those of subtrees."""
        yield from self.root.walk()
        if self.finally_node is not None:
            yield from self.finally_node.walk()

    def used_trees(self) -> list[Tree]:
        """Return the trees that this one refers to, directly or indirectly, each once."""
        trees: dict[str, Tree] = {}
        pending: list[Tree] = [self]
        while pending:
            for node in pending.pop().nodes():
                if node.tree is not None and node.tree.name not in trees:
                    trees[node.tree.name] = node.tree
                    pending.append(node.tree)
        return list(trees.values())
