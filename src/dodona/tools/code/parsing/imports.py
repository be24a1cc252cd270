"""The import statements of a file, as written."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from tree_sitter import Node

from dodona.tools.code.parsing.extracted import Import
from dodona.tools.code.parsing.grammar import Captures, row_of

MAX_NAMES: Final = 500  # per import


def imports_of(captures: Captures, data: bytes) -> tuple[Import, ...]:
    """Return the imports in order. A statement with several modules has no names."""
    statements = sorted({(n.start_byte, n.end_byte): n for n in captures.get("import", ())}.items())
    modules, names = (_sort_by_start(captures.get(kind, ())) for kind in ("module", "imported"))
    imports: list[Import] = []
    for (start, end), node in statements:
        statement_modules = _nodes_between(modules, start, end)
        statement_names = (
            _nodes_between(names, start, end)[:MAX_NAMES] if len(statement_modules) <= 1 else []
        )
        texts = tuple(_clean_text(name, data) for name in statement_names)
        line = row_of(node) + 1
        imports += [Import(_clean_text(module, data), texts, line) for module in statement_modules]
        if not statement_modules and texts:  # from __future__ import …
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
