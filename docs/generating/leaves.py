"""Generates leaves.md from the registry of the agent's leaves."""

from __future__ import annotations

from inspect import getdoc

from dodona.agent.extensions import shipped_leaves
from dodona.trees.runtime.leaves import Leaf
from generating.writing import page, prose, table


def leaves_page() -> str:
    """Return the text of leaves.md."""
    return page(
        "# Agent leaves",
        prose("""The functions that `oracle.lisp` and [custom trees](../how-to/change-the-tree.md)
            can use: leaves by `:fn` or by name, decorators as `(decorator NAME CHILD)`. They are in
            `dodona.agent.leaves`."""),
        prose("""A *pure* leaf only reads and writes the blackboard. It runs again when a run is
            resumed. A *step* is recorded in the journal: on resume, its result is applied and it
            does not run again. The effect says how to resume a step that a crash interrupted:
            `none` and `keyed` run again, `once` does not. See [how to write
            leaves](../how-to/write-leaves.md)."""),
        table(
            ("leaf", "kind", "effect", "reads", "writes", "description"),
            [_row(leaf) for leaf in shipped_leaves().leaves.values()],
        ),
        "## Decorators",
        table(
            ("decorator", "kind", "effect", "reads", "writes", "description"),
            [_row(decoration.enter) for decoration in shipped_leaves().decorations.values()],
        ),
    )


def _row(leaf: Leaf) -> tuple[str, ...]:
    return (
        f"`{leaf.name}`",
        "step" if leaf.step else "pure",
        _effect(leaf),
        _keys(leaf.reads),
        _keys(leaf.writes),
        " ".join((getdoc(leaf.function) or "").partition("\n\n")[0].split()),
    )


def _effect(leaf: Leaf) -> str:
    if leaf.effect_of is not None:
        return "depends on the call"
    return f"`{leaf.effect.value}`" if leaf.step else ""


def _keys(keys: tuple[str, ...]) -> str:
    return ", ".join(f"`{key}`" for key in keys)
