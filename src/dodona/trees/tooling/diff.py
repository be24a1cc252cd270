"""Describes the changes between two versions of a tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher

from dodona.lisp import Form, List, Symbol, to_text
from dodona.trees.language.node import Node
from dodona.trees.language.tree import Tree

MAX_LINES = 50
# The comparison is quadratic; above this size only the numbers of nodes are reported.
MAX_NODES = 2_000


def diff_trees(old: Tree, new: Tree) -> list[str]:
    """Return one line per node or key that was added, removed or changed; empty if equal."""
    lines = [*_diff_keys(old, new), *_diff_nodes(old, new)]
    if old.description != new.description:
        lines.append("~ description")
    if len(lines) > MAX_LINES:
        lines[MAX_LINES:] = [f"… and {len(lines) - MAX_LINES} more"]
    return lines


def _diff_keys(old: Tree, new: Tree) -> Iterator[str]:
    before, after = old.run_schema.keys, new.run_schema.keys
    for name in [*before, *(name for name in after if name not in before)]:
        if name not in after:
            yield f"- key :{name}"
        elif name not in before:
            yield f"+ key :{name}"
        elif before[name] != after[name]:
            yield f"~ key :{name}"


def _diff_nodes(old: Tree, new: Tree) -> Iterator[str]:
    """Compare the nodes as lines of an outline: depth, and the node without its children."""
    before, after = list(_outline(old)), list(_outline(new))
    if max(len(before), len(after)) > MAX_NODES:
        yield f"~ {len(before)} nodes became {len(after)}"
        return
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for operation, a, b, c, d in matcher.get_opcodes():
        if operation == "equal":
            continue
        removed, added = Counter(before[a:b]), Counter(after[c:d])
        yield from (f"- {line.strip()}" for line in (removed - added).elements())
        yield from (f"+ {line.strip()}" for line in (added - removed).elements())


def _outline(tree: Tree) -> Iterator[str]:
    yield from _outline_node(tree.root, 0)
    if tree.finally_node is not None:
        yield from _outline_node(tree.finally_node, 0)


def _outline_node(node: Node, depth: int) -> Iterator[str]:
    yield "  " * depth + _node_text(node)
    for child in node.children:
        yield from _outline_node(child, depth + 1)
    if node.tree is not None:
        yield from _outline_node(node.tree.root, depth + 1)
        if node.tree.finally_node is not None:
            yield from _outline_node(node.tree.finally_node, depth + 1)


def _node_text(node: Node) -> str:
    """Return the text of the node's form without its children."""
    if not isinstance(node.form, List):
        return to_text(node.form)
    child_ids = {id(child.form) for child in node.children}
    items: list[Form] = [item for item in node.form.items if id(item) not in child_ids]
    only_head = len(items) == 1 and isinstance(items[0], Symbol)
    text = to_text(List(tuple(items), node.form.span))
    return text[1:-1] if only_head else text
