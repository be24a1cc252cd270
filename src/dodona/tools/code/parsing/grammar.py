"""Parses source files and runs the query of their language.

Grammars are imported on use. Parsers and cursors are per thread. Parsing holds the GIL, so the
source is passed in pieces: other threads run in between, and a file that takes too long is dropped.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from importlib.resources import files
from threading import local
from time import thread_time
from typing import Final, TypeAlias

from tree_sitter import Language as Grammar
from tree_sitter import Node, Parser, Point, Query, QueryCursor, Tree

from dodona.tools.code.parsing.languages import LANGUAGES

READ_BYTES: Final = 16_384  # piece size; other threads can run between pieces
MAX_PARSE_SECONDS: Final = 2.0  # CPU time; a megabyte takes a tenth of it
MAX_OPEN_ANGLES: Final = 200  # unclosed `<`; each may double the parser's work

Captures: TypeAlias = dict[str, list[Node]]

_thread_local = local()
_NON_ANGLE_BYTES = bytes(set(range(256)) - set(b"<>;{}"))
_COMMENT_OR_STRING = re.compile(
    rb"//[^\n]*|#[^\n]*|/\*.*?\*/|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'", re.S
)


def find_captures(language: str, data: bytes, *, with_names: bool = False) -> Captures | None:
    """Return the captures of a language's query in UTF-8 source; `with_names` adds each name.

    None if there is no grammar or parsing takes too long.
    """
    tree = _parse(language, data)
    if tree is None:
        return None
    return _get_cursor(language, with_names=with_names).captures(tree.root_node)


def row_of(node: Node) -> int:
    """Return the row of a node's start.

    Indexed by position: in tree-sitter 0.26.0 `Point.row` and `.column` return objects they do not
    own, and the process crashes soon after row 256.
    """
    return node.start_point[0]


def _parse(language: str, data: bytes) -> Tree | None:
    """Parse a source, or return None. `progress_callback` crashes in tree-sitter 0.26."""
    parser = _get_parser(language)
    if parser is None or (LANGUAGES[language].nests_angles and _has_too_many_open_angles(data)):
        return None
    until = thread_time() + MAX_PARSE_SECONDS
    end, seen = len(data), 0

    def read(at: int, _: Point) -> bytes:
        nonlocal end, seen
        if thread_time() > until:
            # Bytes that were read must stay readable, or the parser crashes.
            end = min(end, seen)
        stop = min(at + READ_BYTES, end)
        seen = max(seen, stop)
        return data[at:stop]

    tree = parser.parse(read)
    return tree if end == len(data) else None


def _has_too_many_open_angles(data: bytes) -> bool:
    """Whether so many `<` are unclosed that error recovery gets quadratic."""
    if data.count(b"<") <= MAX_OPEN_ANGLES:
        return False
    return b"<" * MAX_OPEN_ANGLES in _COMMENT_OR_STRING.sub(b"", data).translate(
        None, _NON_ANGLE_BYTES
    )


def _get_parser(language: str) -> Parser | None:
    parsers: dict[str, Parser] = _thread_local.__dict__.setdefault("parsers", {})
    if language not in parsers:
        grammar = _load_grammar(language)
        if grammar is None:
            return None
        parsers[language] = Parser(grammar)
    return parsers[language]


def _get_cursor(language: str, *, with_names: bool) -> QueryCursor:
    cursors: dict[tuple[str, bool], QueryCursor] = _thread_local.__dict__.setdefault("cursors", {})
    if (language, with_names) not in cursors:
        cursors[language, with_names] = QueryCursor(_load_query(language, with_names=with_names))
    return cursors[language, with_names]


@cache
def _load_grammar(language: str) -> Grammar | None:
    if language not in LANGUAGES:
        return None
    spec = LANGUAGES[language]
    capsule: object = getattr(import_module(spec.grammar_module), spec.grammar_function)()
    return Grammar(capsule)


@cache
def _load_query(language: str, *, with_names: bool) -> Query:
    grammar = _load_grammar(language)
    assert grammar is not None
    spec = LANGUAGES[language]
    parts = [
        _read_query(name) for name in (spec.base_query_file, spec.query_file or language) if name
    ]
    # Names are most of the captures: leaving them out saves a third of the time.
    return Query(
        grammar, "\n".join(part if with_names else part.partition("\n\n")[2] for part in parts)
    )


def _read_query(name: str) -> str:
    """Return a query; its patterns for names come before its first empty line."""
    return (files("dodona.tools.code") / "queries" / f"{name}.scm").read_text("utf-8")
