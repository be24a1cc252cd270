"""What a file takes from others, as it is written."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from tree_sitter import Node

from dodona.tools.code.parsing.extracted import Import
from dodona.tools.code.parsing.grammar import Captures, row_of

MAX_NAMES: Final = 500  # of one import


def imports_of(captures: Captures, data: bytes) -> tuple[Import, ...]:
    """In order. The names of a statement go with its module, unless it has several."""
    statements = sorted({(n.start_byte, n.end_byte): n for n in captures.get("import", ())}.items())
    modules, names = (_sort_by_start(captures.get(kind, ())) for kind in ("module", "imported"))
    imports: list[Import] = []
    for (start, end), node in statements:
        within = _nodes_between(modules, start, end)
        taken = _nodes_between(names, start, end)[:MAX_NAMES] if len(within) <= 1 else []
        texts = tuple(_clean_text(name, data) for name in taken)
        line = row_of(node) + 1
        imports += [Import(_clean_text(module, data), texts, line) for module in within]
        if not within and texts:  # from __future__ import …
            imports.append(Import("__future__", texts, line))
    return tuple(imports)


def _sort_by_start(nodes: Sequence[Node]) -> list[tuple[int, Node]]:
    return sorted({node.start_byte: node for node in nodes}.items())


def _nodes_between(nodes: list[tuple[int, Node]], start: int, end: int) -> list[Node]:
    first = bisect_right(nodes, start - 1, key=_start_of)
    return [node for _, node in nodes[first : bisect_right(nodes, end - 1, key=_start_of)]]


def _start_of(item: tuple[int, Node]) -> int:
    return item[0]


def _clean_text(node: Node, data: bytes) -> str:
    text = data[node.start_byte : node.end_byte].decode("utf-8", "replace")
    return "".join(text.split()).strip("<>\"'")
