"""The definitions of a file as nested spans, and the names they define."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from tree_sitter import Node

from dodona.tools.code.parsing.grammar import Captures, row_of

MAX_DEPTH: Final = 40  # deeper definitions are not indexed
MAX_SPANS: Final = 50_000  # per file; more means a generated table

# If a query captures a name as two kinds, the later one here wins.
_KINDS_BY_PRECEDENCE: Final = (
    "variable",
    "type",
    "attribute",
    "constant",
    "function",
    "method",
    "macro",
    "module_name",
    "interface",
    "trait",
    "enum",
    "struct",
    "class",
    "scope",
    "owner",
)
_TYPE_KINDS: Final = frozenset({"class", "struct", "interface", "trait", "enum", "scope", "type"})
_FUNCTION_KINDS: Final = frozenset({"function", "method"})
_KINDS_INDEXED_IN_FUNCTIONS: Final = _FUNCTION_KINDS | _TYPE_KINDS | {"attribute", "macro"}


@dataclass(slots=True)
class DefinedName:
    """A defined name and its kind."""

    text: str
    kind: str
    start: int


@dataclass(slots=True, eq=False)
class DefinitionSpan:
    """A definition from its first byte to its last; `names` may be empty."""

    node: Node
    start: int
    end: int
    parent: DefinitionSpan | None = None
    depth: int = 0
    names: list[DefinedName] = field(default_factory=list[DefinedName])
    owners: list[str] = field(default_factory=list[str])
    children: list[DefinitionSpan] = field(default_factory=list["DefinitionSpan"])

    @property
    def kind(self) -> str:
        return self.names[0].kind if self.names else ""

    @property
    def first(self) -> int:
        return row_of(self.node) + 1

    @property
    def last(self) -> int:
        row, column = self.node.end_point
        return row if column == 0 and row >= self.first else row + 1


def spans_of(captures: Captures, data: bytes) -> list[DefinitionSpan]:
    """Return the outermost definitions, which contain the others as children."""
    spans = _build_spans(captures.get("definition", ()))
    _assign_names(spans, names_of(captures, data))
    outermost: list[DefinitionSpan] = []
    for span in spans:
        span.parent = _enclosing_definition(span)
        if not _resolve_kinds(span):
            span.names.clear()
        elif span.parent is None:
            outermost.append(span)
        else:
            span.parent.children.append(span)
    return outermost


def iter_named_spans(
    spans: Iterable[DefinitionSpan],
) -> Iterator[tuple[DefinitionSpan, DefinedName, str]]:
    """Yield each name with its span and container path, in file order.

    An attribute that is assigned several times is yielded once.
    """
    seen: set[tuple[str, str]] = set()
    pending = list(reversed(list(spans)))
    while pending:
        span = pending.pop()
        pending.extend(reversed(span.children))
        if span.kind == "scope":
            continue
        container = _container_path(span)
        for name in span.names:
            if name.kind == "attribute" and (container, name.text) in seen:
                continue
            seen.add((container, name.text))
            yield span, name, container


def _container_path(span: DefinitionSpan) -> str:
    """Return the dotted path of the definitions around a span."""
    parts = [".".join(span.owners)] if span.owners else []
    parent = span.parent
    while parent is not None:
        parts.append(".".join([*parent.owners, parent.names[0].text]))
        parent = parent.parent
    return ".".join(reversed(parts))


def _build_spans(nodes: Iterable[Node]) -> list[DefinitionSpan]:
    """Build one span per position, in file order, outer spans first."""
    unique = {(node.start_byte, -node.end_byte): node for node in nodes}
    if len(unique) > MAX_SPANS:
        return []
    return [
        DefinitionSpan(node, start, -end)
        for (start, end), node in sorted(unique.items(), key=_sort_key)
    ]


def _sort_key(item: tuple[tuple[int, int], Node]) -> tuple[int, int]:
    return item[0]


def names_of(captures: Captures, data: bytes) -> list[DefinedName]:
    """Return every name that the query of a language captures, in file order."""
    names: dict[int, DefinedName] = {}
    for kind in _KINDS_BY_PRECEDENCE:
        for node in captures.get(kind, ()):
            start = node.start_byte
            text = data[start : node.end_byte].decode("utf-8", "replace")
            names[start] = DefinedName(_clean_name(text), kind, start)
    for node in captures.get("targets", ()):
        for name in _assignment_targets(node, data):
            names.setdefault(name.start, name)
    return sorted(names.values(), key=lambda name: name.start)


def _clean_name(text: str) -> str:
    """Strip characters that are not part of a name: colon, quotes, type arguments, spaces."""
    if text.isidentifier():
        return text
    bare = "".join(text.split()).strip("\"'`").removeprefix(":").replace("::", ".")
    return bare if "operator" in bare else bare.split("<", 1)[0].replace("\\", ".")


def _assignment_targets(node: Node, data: bytes) -> list[DefinedName]:
    """Return the names that a Python assignment binds, including attributes of self."""
    kind = node.type
    start, end = node.start_byte, node.end_byte
    if kind == "identifier":
        return [DefinedName(data[start:end].decode("utf-8", "replace"), "variable", start)]
    if kind == "attribute":
        text = data[start:end].decode("utf-8", "replace")
        owner, _, name = text.partition(".")
        is_attribute = owner in {"self", "cls"} and name.isidentifier()
        return [DefinedName(name, "attribute", end - len(name.encode()))] if is_attribute else []
    if kind in {"pattern_list", "tuple_pattern", "list_pattern", "list_splat_pattern"}:
        parts = node.named_children if node.descendant_count < 1_000 else ()
        return [name for part in parts for name in _assignment_targets(part, data)]
    return []


def _assign_names(spans: list[DefinitionSpan], names: list[DefinedName]) -> None:
    """Assign each name to its innermost span, and each span to its parent."""
    open_spans: list[DefinitionSpan] = []
    at = 0
    for name in names:
        while at < len(spans) and spans[at].start <= name.start:
            _push_span(open_spans, spans[at])
            at += 1
        while open_spans and open_spans[-1].end <= name.start:
            open_spans.pop()
        if open_spans and name.kind == "owner":
            open_spans[-1].owners.append(name.text)
        elif open_spans and name.text:
            open_spans[-1].names.append(name)
    for span in spans[at:]:
        _push_span(open_spans, span)


def _push_span(open_spans: list[DefinitionSpan], span: DefinitionSpan) -> None:
    while open_spans and open_spans[-1].end <= span.start:
        open_spans.pop()
    span.parent = open_spans[-1] if open_spans else None
    span.depth = span.parent.depth + 1 if span.parent else 0
    open_spans.append(span)


def _enclosing_definition(span: DefinitionSpan) -> DefinitionSpan | None:
    """Return the nearest enclosing span that is a definition."""
    parent = span.parent
    while parent is not None and not parent.names:
        parent = parent.parent
    if parent is not None and span.kind == "attribute" and parent.kind in _FUNCTION_KINDS:
        # `self.x = …` in a method defines an attribute of the class.
        return parent.parent if parent.parent is not None else parent
    return parent


def _resolve_kinds(span: DefinitionSpan) -> bool:
    """Set the kind of the span's names. Return False if it is local to a function."""
    parent = span.parent
    if not span.names or span.depth > MAX_DEPTH:
        return False
    if (
        parent is not None
        and parent.kind in _FUNCTION_KINDS
        and span.kind not in _KINDS_INDEXED_IN_FUNCTIONS
    ):
        return False
    in_type = span.owners or (parent is not None and parent.kind in _TYPE_KINDS)
    for name in span.names:
        name.kind = _resolve_kind(name, in_type=bool(in_type))
    return True


def _resolve_kind(name: DefinedName, *, in_type: bool) -> str:
    if name.kind == "module_name":
        return "module"
    if in_type and name.kind == "function":
        return "method"
    if name.kind in {"variable", "attribute"} and name.text.isupper() and len(name.text) > 1:
        return "constant"
    if in_type and name.kind == "variable":
        return "attribute"
    return name.kind
