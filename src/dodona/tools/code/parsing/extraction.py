"""Extracts definitions, imports and names from a source file."""

from __future__ import annotations

import codecs
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from tree_sitter import Node

from dodona.tools.code.index.chunks import Chunker
from dodona.tools.code.index.tokenize import raw_words
from dodona.tools.code.parsing.extracted import CodeSymbol, ExtractedFile, Import
from dodona.tools.code.parsing.grammar import (
    LANGUAGES,
    TEXT,
    Captures,
    find_captures,
    language_of,
    row_of,
)
from dodona.tools.code.parsing.spans import DefinedName, DefinitionSpan, iter_named_spans, spans_of

LANGUAGE_SNIFF_BYTES: Final = 4_096  # enough to detect a language
MAX_SIGNATURE_CHARS: Final = 200
MAX_NAME_CHARS: Final = 200


def extract(path: str, data: bytes) -> ExtractedFile:
    """Extract definitions, imports and names. Accepts any bytes; never raises."""
    language = language_of(path, data[:LANGUAGE_SNIFF_BYTES])
    source = to_utf8(data)
    captures = find_captures(language, source) if language != TEXT else None
    if captures is None:
        return ExtractedFile(TEXT, (), Chunker(source).split(()), (), frozenset())
    spans = spans_of(captures, source)
    chunks = Chunker(
        source, captures.get("above", ()), function_keyword=LANGUAGES[language].function_keyword
    )
    return ExtractedFile(
        language=language,
        symbols=tuple(
            _build_symbol(span, name, container=container, data=source)
            for span, name, container in iter_named_spans(spans)
        ),
        chunks=chunks.split(spans),
        imports=imports_of(captures, source),
        names=_collect_names(captures, source),
    )


def to_utf8(data: bytes) -> bytes:
    """Convert a file to UTF-8 without a byte order mark, from UTF-8, UTF-16 or Latin-1."""
    if data.startswith(codecs.BOM_UTF8):
        return data[len(codecs.BOM_UTF8) :]
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace").encode("utf-8", "replace")
    if data.isascii():
        return data
    try:
        data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1").encode()
    return data


def _collect_names(captures: Captures, data: bytes) -> frozenset[str]:
    """Return the words outside of comments and strings."""
    pieces: list[bytes] = []
    at = 0
    for start, end in sorted((node.start_byte, node.end_byte) for node in captures.get("text", ())):
        pieces.append(data[at:start])
        at = max(at, end)
    pieces.append(data[at:])
    words = raw_words(b" ".join(pieces))
    return frozenset(
        word.decode("utf-8", "replace") for word in words if len(word) <= MAX_NAME_CHARS
    )


def _build_symbol(
    span: DefinitionSpan, name: DefinedName, *, container: str, data: bytes
) -> CodeSymbol:
    return CodeSymbol(
        name=name.text[:MAX_NAME_CHARS],
        kind=name.kind,
        first=span.first,
        last=span.last,
        signature=_extract_signature(span, data),
        container=container,
    )


def _extract_signature(span: DefinitionSpan, data: bytes) -> str:
    """Return the text from the line start to the body as one line; without a body, the line."""
    body = span.node.child_by_field_name("body")
    if body is None and (value := span.node.child_by_field_name("value")):
        body = value.child_by_field_name("body")
    start = data.rfind(b"\n", 0, span.start) + 1
    if len(data[start : span.start]) > MAX_SIGNATURE_CHARS:
        start = span.start  # a very long line, as in minified code
    end = _line_end(data, span.start) if body is None else _signature_end(span, body, data)
    text = data[start : min(end, start + 4 * MAX_SIGNATURE_CHARS)].decode("utf-8", "replace")
    words = " ".join(text.split()).rstrip(" {:" if body is not None else " {")
    return words.removesuffix("=>").rstrip()[:MAX_SIGNATURE_CHARS]


def _signature_end(span: DefinitionSpan, body: Node, data: bytes) -> int:
    """Return where a signature ends: at the body, or at comments before it."""
    head = data[span.start : body.start_byte]
    if b"#" not in head and b"/" not in head:
        return body.start_byte  # the fast path, for nearly all definitions
    end = body
    while (previous := end.prev_sibling) is not None and "comment" in previous.type:
        end = previous
    return end.start_byte


def _line_end(data: bytes, start: int) -> int:
    end = data.find(b"\n", start)
    return len(data) if end < 0 else end


# -- imports ---------------------------------------------------------------------------------------

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
