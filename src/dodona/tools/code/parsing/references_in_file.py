"""Finds the uses of a name in a file's code.

A use is any occurrence in code that does not bind the name: definitions, parameters and new local
variables are excluded. Names are not resolved. In a language without a grammar every whole word
counts; in prose none does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tree_sitter import Node

from dodona.tools.code.parsing.extraction import LANGUAGE_SNIFF_BYTES, to_utf8
from dodona.tools.code.parsing.grammar import TEXT, find_captures, language_of, row_of
from dodona.tools.code.parsing.spans import iter_named_spans, names_of, spans_of

# The field of a node that binds a name.
_BINDING_FIELDS: Final = {
    "assignment": "left",
    "const_spec": "name",
    "declaration": "declarator",
    "enhanced_for_statement": "name",
    "for_expression": "pattern",
    "for_in_clause": "left",
    "for_in_statement": "left",
    "for_range_loop": "declarator",
    "for_statement": "left",
    "foreach_statement": "left",
    "init_declarator": "declarator",
    "let_declaration": "pattern",
    "named_expression": "name",
    "range_clause": "left",
    "short_var_declaration": "left",
    "var_spec": "name",
    "variable_assignment": "name",
    "variable_declarator": "name",
}
# Nodes that contain several bound names, or one with modifiers.
_PATTERN_NODES: Final = frozenset(
    {
        "array_declarator",
        "dictionary_splat_pattern",
        "expression_list",
        "left_assignment_list",
        "list_pattern",
        "list_splat_pattern",
        "mut_pattern",
        "pattern_list",
        "pointer_declarator",
        "reference_declarator",
        "rest_pattern",
        "tuple_pattern",
        "variable_name",
    }
)
# Fields of a parameter that do not bind a name.
_NON_BINDING_FIELDS: Final = ("type", "value", "default", "right", "bounds")
_PROSE_EXTENSIONS: Final = frozenset(
    {"adoc", "csv", "log", "markdown", "md", "rst", "svg", "tsv", "txt"}
)


@dataclass(frozen=True, slots=True)
class NameUse:
    """A use of a name in code; lines from 1, columns from 0, in characters."""

    line: int
    column: int


def find_uses(path: str, data: bytes, name: str) -> list[NameUse]:
    """Return the uses of a name in a file's code in order, without comments and strings."""
    source, encoded_name = to_utf8(data), name.encode("utf-8", "replace")
    if not encoded_name or encoded_name not in source:
        return []
    language = language_of(path, data[:LANGUAGE_SNIFF_BYTES])
    captures = find_captures(language, source, with_names=True) if language != TEXT else None
    if captures is None:
        return (
            []
            if path.rpartition(".")[2].lower() in _PROSE_EXTENSIONS
            else list(_find_words(source, name))
        )
    # In this order: `spans_of` clears the names of function-local definitions.
    bound = {defined.start for defined in names_of(captures, source) if defined.kind == "variable"}
    bound.update(defined.start for _, defined, _ in iter_named_spans(spans_of(captures, source)))
    nodes = {
        node.start_byte: node
        for node in captures.get("id", ())
        if node.end_byte - node.start_byte == len(encoded_name)
        and source[node.start_byte : node.end_byte] == encoded_name
    }
    return [
        _use_at(source, start, row_of(node))
        for start, node in sorted(nodes.items())
        if start not in bound and not _is_binding(node)
    ]


def _use_at(source: bytes, start: int, row: int) -> NameUse:
    line = source.rfind(b"\n", 0, start) + 1
    return NameUse(row + 1, len(source[line:start].decode("utf-8", "replace")))


def _is_binding(node: Node) -> bool:
    """Whether the node binds a parameter or local variable."""
    parent = node.parent
    while parent is not None and parent.type in _PATTERN_NODES:
        node, parent = parent, parent.parent
    if parent is None:
        return False
    if parent.type == "as_pattern_target":
        return True
    if "parameter" in parent.type:
        return not any(_is_in_field(node, parent, field) for field in _NON_BINDING_FIELDS)
    field = _BINDING_FIELDS.get(parent.type)
    return field is not None and _is_in_field(node, parent, field)


def _is_in_field(node: Node, parent: Node, field: str) -> bool:
    return any(
        child.start_byte <= node.start_byte and node.end_byte <= child.end_byte
        for child in parent.children_by_field_name(field)
    )


def _find_words(source: bytes, name: str) -> Iterator[NameUse]:
    """Yield whole-word matches in a text."""
    pattern = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
    for number, line in enumerate(source.decode("utf-8", "replace").split("\n"), 1):
        for match in pattern.finditer(line):
            yield NameUse(number, match.start())
