"""Take from a source file what it defines, imports and names."""

from __future__ import annotations

import codecs
from typing import Final

from tree_sitter import Node

from dodona.tools.code.index.chunks import Chunks
from dodona.tools.code.index.tokenize import raw_words
from dodona.tools.code.parsing.extracted import Chunk, Extracted, Import, Symbol
from dodona.tools.code.parsing.grammar import Captures, captures
from dodona.tools.code.parsing.imports import imports_of
from dodona.tools.code.parsing.languages import LANGUAGES, TEXT, language_of
from dodona.tools.code.parsing.spans import Name, Span, named, spans_of

__all__ = ["Chunk", "Extracted", "Import", "Symbol", "extract", "language_of", "utf8"]

HEAD: Final = 4_096  # bytes that tell a language
LONGEST_SIGNATURE: Final = 200
LONGEST_NAME: Final = 200


def extract(path: str, data: bytes) -> Extracted:
    """What a file defines, imports and names. Takes any bytes; never raises."""
    language = language_of(path, data[:HEAD])
    source = utf8(data)
    found = captures(language, source) if language != TEXT else None
    if found is None:
        return Extracted(TEXT, (), Chunks(source).of(()), (), frozenset())
    spans = spans_of(found, source)
    chunks = Chunks(source, found.get("above", ()), word=LANGUAGES[language].word)
    return Extracted(
        language=language,
        symbols=tuple(
            _symbol(span, name, container=container, data=source)
            for span, name, container in named(spans)
        ),
        chunks=chunks.of(spans),
        imports=imports_of(found, source),
        names=_names(found, source),
    )


def utf8(data: bytes) -> bytes:
    """The text of a file in UTF-8, without a mark: UTF-16 by its mark, else Latin-1."""
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


def _names(found: Captures, data: bytes) -> frozenset[str]:
    """The words of what is neither comment nor string."""
    pieces: list[bytes] = []
    at = 0
    for start, end in sorted((node.start_byte, node.end_byte) for node in found.get("text", ())):
        pieces.append(data[at:start])
        at = max(at, end)
    pieces.append(data[at:])
    words = raw_words(b" ".join(pieces))
    return frozenset(word.decode("utf-8", "replace") for word in words if len(word) <= LONGEST_NAME)


def _symbol(span: Span, name: Name, *, container: str, data: bytes) -> Symbol:
    return Symbol(
        name=name.text[:LONGEST_NAME],
        kind=name.kind,
        first=span.first,
        last=span.last,
        signature=_signature(span, data),
        container=container,
    )


def _signature(span: Span, data: bytes) -> str:
    """From the beginning of its line to its body, in one line; else the line."""
    body = span.node.child_by_field_name("body")
    if body is None and (value := span.node.child_by_field_name("value")):
        body = value.child_by_field_name("body")
    start = data.rfind(b"\n", 0, span.start) + 1
    if len(data[start : span.start]) > LONGEST_SIGNATURE:
        start = span.start  # a line without an end, as minified code has it
    end = _line_end(data, span.start) if body is None else _head_end(span, body, data)
    text = data[start : min(end, start + 4 * LONGEST_SIGNATURE)].decode("utf-8", "replace")
    words = " ".join(text.split()).rstrip(" {:" if body is not None else " {")
    return words.removesuffix("=>").rstrip()[:LONGEST_SIGNATURE]


def _head_end(span: Span, body: Node, data: bytes) -> int:
    """Where what stands before a body ends: at the body, or at the comments before it."""
    head = data[span.start : body.start_byte]
    if b"#" not in head and b"/" not in head:
        return body.start_byte  # the quick way, and nearly all of them
    end = body
    while (before := end.prev_sibling) is not None and "comment" in before.type:
        end = before
    return end.start_byte


def _line_end(data: bytes, start: int) -> int:
    end = data.find(b"\n", start)
    return len(data) if end < 0 else end
