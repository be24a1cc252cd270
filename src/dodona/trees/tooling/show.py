"""Renders a tree as ASCII, Mermaid or JSON, optionally with the statuses of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dodona.trees.language.expressions import Expression
from dodona.trees.language.node import Node
from dodona.trees.language.tree import Tree
from dodona.trees.runtime.program import Place
from dodona.trees.runtime.status import Status

STATUS_MARKS = {Status.SUCCESS: "✓", Status.FAILURE: "✗", Status.RUNNING: "▶", None: " "}

Statuses = Mapping[int, Status]


def as_ascii(tree: Tree, statuses: Statuses | None = None) -> str:
    """Render an outline with one node per line, followed by its options."""
    title = f"{tree.name}: {tree.description}" if tree.description else tree.name
    parts = _line_labels(tree)
    lines = [title]
    for place, ancestry in _walk_places(tree):
        prefix = "".join("   " if last else "│  " for last in ancestry[:-1])
        elbow = "└─ " if ancestry[-1] else "├─ "
        mark = f"{STATUS_MARKS[statuses.get(place.index)]} " if statuses is not None else ""
        label = parts[place.index]
        lines.append(f"{prefix}{elbow}{mark}{label}")
    return "\n".join(lines)


def as_mermaid(tree: Tree, statuses: Statuses | None = None) -> str:
    """Render a Mermaid flowchart for a Markdown page."""
    lines = ["flowchart TD", f'  root["{_escape(tree.name)}"]']
    parts = _line_labels(tree)
    for place in tree.program().places:
        opening, closing = _shape(place.node)
        parent = "root" if place.parent is None else f"n{place.parent}"
        lines.append(f'  n{place.index}{opening}"{_escape(parts[place.index])}"{closing}')
        lines.append(f"  {parent} --> n{place.index}")
    for status, colour in _STATUS_COLOURS.items():
        names = [f"n{k}" for k, value in sorted((statuses or {}).items()) if value is status]
        if names:
            lines.append(f"  classDef {status.value} fill:{colour}")
            lines.append(f"  class {','.join(names)} {status.value}")
    return "\n".join(lines)


def as_json(tree: Tree, statuses: Statuses | None = None) -> dict[str, Any]:
    """Return every node with its kind, options and position in the file."""
    places = tree.program().places
    nodes: list[dict[str, Any]] = [_node_json(place, statuses) for place in places]
    for place in places:
        if place.parent is not None:
            nodes[place.parent]["children"].append(nodes[place.index])
    roots = [nodes[place.index] for place in places if place.parent is None]
    return {
        "name": tree.name,
        "description": tree.description,
        "digest": tree.digest,
        "blackboard": {
            name: {"type": key.type, "default": key.default, "scope": key.scope.value}
            for name, key in tree.run_schema.keys.items()
        },
        "root": roots[0],
        "finally": roots[1] if len(roots) > 1 else None,
    }


_STATUS_COLOURS = {Status.SUCCESS: "#c8e6c9", Status.FAILURE: "#ffcdd2", Status.RUNNING: "#fff3c4"}


def _node_json(place: Place, statuses: Statuses | None) -> dict[str, Any]:
    node = place.node
    result: dict[str, Any] = {
        "kind": node.kind.name,
        "name": node.name,
        "path": place.path,
        "options": {key: _option_value(value) for key, value in node.options.items()},
        "line": node.span.line,
        "column": node.span.column,
    }
    if node.test is not None:
        result["test"] = str(node.test)
    if node.leaf is not None:
        result["leaf"] = node.leaf.name
    if statuses is not None:
        status = statuses.get(place.index)
        result["status"] = status.value if status else None
    result["children"] = []
    return result


def _option_value(value: Any) -> Any:
    if not isinstance(value, Expression):
        return value
    return value.value if value.constant else str(value)


def _line_labels(tree: Tree) -> list[str]:
    """Return the label of each place."""
    places = tree.program().places
    labels = [_node_label(place.node) for place in places]
    for place in places:
        outer = places[place.parent].region if place.parent is not None else None
        if place.region.phase and place.region is not outer:
            labels[place.index] = f"{place.region.phase} {labels[place.index]}"
    return labels


def _node_label(node: Node) -> str:
    words = [node.kind.name]
    if node.name:
        words.append(f'"{node.name}"' if node.tree else node.name)
    if node.leaf is not None and node.leaf.name not in (node.name, node.kind.name):
        words.append(f"→ {node.leaf.name}")
    if node.test is not None:
        words.append(str(node.test))
    for option, value in node.options.items():
        if isinstance(value, bool):
            words.append(f":{option}" if value else f":{option} false")
        elif isinstance(value, Expression):
            words.append(f":{option} {value}")
        else:
            words.append(f":{option} :{value}")
    return " ".join(words)


def _walk_places(tree: Tree) -> Iterator[tuple[Place, list[bool]]]:
    """Yield places in order, each with flags: is each ancestor (and itself) a last child?"""
    places = tree.program().places
    children: dict[int | None, list[Place]] = {}
    for place in places:
        children.setdefault(place.parent, []).append(place)
    pending = [(place, [place is children[None][-1]]) for place in reversed(children[None])]
    while pending:
        place, ancestry = pending.pop()
        yield place, ancestry
        below = children.get(place.index, [])
        pending.extend((child, [*ancestry, child is below[-1]]) for child in reversed(below))


def _shape(node: Node) -> tuple[str, str]:
    if node.leaf is not None or node.kind.name == "condition":
        return ("{{", "}}") if node.kind.name == "condition" else ("(", ")")
    return ("[", "]")


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
