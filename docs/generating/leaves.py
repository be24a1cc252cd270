"""leaves.md, of what the agent's trees may name."""

from __future__ import annotations

from inspect import getdoc

from dodona.agent.leaves import REGISTRY
from dodona.trees.runtime.leaves import Leaf
from generating.writing import page, prose, table


def leaves_page() -> str:
    return page(
        "# Leaves of the agent",
        prose("""What `oracle.lisp`, or [a tree of your own](../how-to/change-the-tree.md), may
            name: leaves by `:fn` or by their own name, decorators by `(decorator NAME CHILD)`. They
            are small functions in `dodona.agent.leaves`."""),
        prose("""*Pure* leaves read and write the blackboard, and run again when a run is resumed. A
            *step* is journalled: what it left is applied, and it is not done again. The effect says
            what becomes of a step that a crash has cut: `none` and `keyed` are done again, `once`
            is not. [Write leaves](../how-to/write-leaves.md) tells more."""),
        table(
            ("leaf", "sort", "effect", "reads", "writes", "what it does"),
            [_row(leaf) for leaf in REGISTRY.leaves.values()],
        ),
        "## Decorators",
        table(
            ("decorator", "sort", "effect", "reads", "writes", "what it does"),
            [_row(decoration.enter) for decoration in REGISTRY.decorations.values()],
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
        return "of what is called"
    return f"`{leaf.effect.value}`" if leaf.step else ""


def _keys(keys: tuple[str, ...]) -> str:
    return ", ".join(f"`{key}`" for key in keys)
