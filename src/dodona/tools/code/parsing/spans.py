"""The definitions of a file as spans of it, one within another, and the names they give."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from tree_sitter import Node

from dodona.tools.code.parsing.grammar import Captures, row_of

DEEPEST: Final = 40  # definitions within definitions; what is deeper is no one's to find
MOST_SPANS: Final = 50_000  # of a file: more are a table that was generated

# Where a query says two kinds of a name, the later one here is meant.
_KINDS: Final = (
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
_TYPES: Final = frozenset({"class", "struct", "interface", "trait", "enum", "scope", "type"})
_FUNCTIONS: Final = frozenset({"function", "method"})
_KEPT_IN_FUNCTIONS: Final = _FUNCTIONS | _TYPES | {"attribute", "macro"}


@dataclass(slots=True)
class Name:
    """A name that a span gives, and what it is the name of."""

    text: str
    kind: str
    start: int


@dataclass(slots=True, eq=False)
class Span:
    """A definition from its first byte to its last; `names` is empty while it has none."""

    node: Node
    start: int
    end: int
    above: Span | None = None
    depth: int = 0
    names: list[Name] = field(default_factory=list[Name])
    owners: list[str] = field(default_factory=list[str])
    inner: list[Span] = field(default_factory=list["Span"])

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


def spans_of(found: Captures, data: bytes) -> list[Span]:
    """The outermost definitions; each holds what is defined in it."""
    spans = _spans(found.get("definition", ()))
    _name(spans, names_of(found, data))
    outermost: list[Span] = []
    for span in spans:
        span.above = _enclosing(span)
        if not _is_kept(span):
            span.names.clear()
        elif span.above is None:
            outermost.append(span)
        else:
            span.above.inner.append(span)
    return outermost


def named(spans: Iterable[Span]) -> Iterator[tuple[Span, Name, str]]:
    """Each name with the path of what it is in, in the order of the file.

    An attribute that is set again and again is given its name once.
    """
    known: set[tuple[str, str]] = set()
    waiting = list(reversed(list(spans)))
    while waiting:
        span = waiting.pop()
        waiting.extend(reversed(span.inner))
        if span.kind == "scope":
            continue
        container = _path(span)
        for name in span.names:
            if name.kind == "attribute" and (container, name.text) in known:
                continue
            known.add((container, name.text))
            yield span, name, container


def _path(span: Span) -> str:
    """The dotted path of what a span is in."""
    parts = [".".join(span.owners)] if span.owners else []
    above = span.above
    while above is not None:
        parts.append(".".join([*above.owners, above.names[0].text]))
        above = above.above
    return ".".join(reversed(parts))


def _spans(nodes: Iterable[Node]) -> list[Span]:
    """In order, those around others first; one for each place, however many patterns found it."""
    unique = {(node.start_byte, -node.end_byte): node for node in nodes}
    if len(unique) > MOST_SPANS:
        return []
    return [Span(node, start, -end) for (start, end), node in sorted(unique.items(), key=_key)]


def _key(item: tuple[tuple[int, int], Node]) -> tuple[int, int]:
    return item[0]


def names_of(found: Captures, data: bytes) -> list[Name]:
    """Every name that the query of a language finds to be given, in the order of the file."""
    names: dict[int, Name] = {}
    for kind in _KINDS:
        for node in found.get(kind, ()):
            start = node.start_byte
            text = data[start : node.end_byte].decode("utf-8", "replace")
            names[start] = Name(_plain(text), kind, start)
    for node in found.get("targets", ()):
        for name in _targets(node, data):
            names.setdefault(name.start, name)
    return sorted(names.values(), key=lambda name: name.start)


def _plain(text: str) -> str:
    """Without what is no part of a name: a symbol's colon, quotes, type arguments, spaces."""
    if text.isidentifier():
        return text
    bare = "".join(text.split()).strip("\"'`").removeprefix(":").replace("::", ".")
    return bare if "operator" in bare else bare.split("<", 1)[0].replace("\\", ".")


def _targets(node: Node, data: bytes) -> list[Name]:
    """What an assignment in Python binds: names, several of them, or attributes of self."""
    kind = node.type
    start, end = node.start_byte, node.end_byte
    if kind == "identifier":
        return [Name(data[start:end].decode("utf-8", "replace"), "variable", start)]
    if kind == "attribute":
        text = data[start:end].decode("utf-8", "replace")
        owner, _, name = text.partition(".")
        of_self = owner in {"self", "cls"} and name.isidentifier()
        return [Name(name, "attribute", end - len(name.encode()))] if of_self else []
    if kind in {"pattern_list", "tuple_pattern", "list_pattern", "list_splat_pattern"}:
        parts = node.named_children if node.descendant_count < 1_000 else ()
        return [name for part in parts for name in _targets(part, data)]
    return []


def _name(spans: list[Span], names: list[Name]) -> None:
    """Give each name to the innermost span around it, and each span the one around it."""
    around: list[Span] = []
    at = 0
    for name in names:
        while at < len(spans) and spans[at].start <= name.start:
            _push(around, spans[at])
            at += 1
        while around and around[-1].end <= name.start:
            around.pop()
        if around and name.kind == "owner":
            around[-1].owners.append(name.text)
        elif around and name.text:
            around[-1].names.append(name)
    for span in spans[at:]:
        _push(around, span)


def _push(around: list[Span], span: Span) -> None:
    while around and around[-1].end <= span.start:
        around.pop()
    span.above = around[-1] if around else None
    span.depth = span.above.depth + 1 if span.above else 0
    around.append(span)


def _enclosing(span: Span) -> Span | None:
    """The nearest span around it that is a definition itself."""
    above = span.above
    while above is not None and not above.names:
        above = above.above
    if above is not None and span.kind == "attribute" and above.kind in _FUNCTIONS:
        # `self.x = …` in a method makes an attribute of the class.
        return above.above if above.above is not None else above
    return above


def _is_kept(span: Span) -> bool:
    """Settle what kind its names are of; False for what is local to a function."""
    above = span.above
    if not span.names or span.depth > DEEPEST:
        return False
    if above is not None and above.kind in _FUNCTIONS and span.kind not in _KEPT_IN_FUNCTIONS:
        return False
    of_type = span.owners or (above is not None and above.kind in _TYPES)
    for name in span.names:
        name.kind = _kind(name, of_type=bool(of_type))
    return True


def _kind(name: Name, *, of_type: bool) -> str:
    if name.kind == "module_name":
        return "module"
    if of_type and name.kind == "function":
        return "method"
    if name.kind in {"variable", "attribute"} and name.text.isupper() and len(name.text) > 1:
        return "constant"
    if of_type and name.kind == "variable":
        return "attribute"
    return name.kind
