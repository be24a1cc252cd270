"""Parse a source file, and gather by its language's query what is in it.

Grammars are imported on use. A parser and a cursor serve one thread each. Parsing holds the
interpreter's lock, so the source is handed over piece by piece: others run in between, and a file
that takes too long ends there.
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

PIECE: Final = 16_384  # bytes between two chances for other threads
MOST_SECONDS: Final = 2.0  # of the processor's time; a megabyte takes a tenth of it
MOST_ANGLES: Final = 200  # `<` that nothing closes; each may double what a grammar has to try

Captures: TypeAlias = dict[str, list[Node]]

_here = local()
_NOT_ANGLES = bytes(set(range(256)) - set(b"<>;{}"))
_QUOTED = re.compile(
    rb"//[^\n]*|#[^\n]*|/\*.*?\*/|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'", re.S
)


def captures(language: str, data: bytes, *, names: bool = False) -> Captures | None:
    """What the query of a language finds in UTF-8 source, by capture; each name too, if wanted.

    None where there is no grammar, or the source is not worth its time.
    """
    tree = _parse(language, data)
    if tree is None:
        return None
    return _cursor(language, names=names).captures(tree.root_node)


def row_of(node: Node) -> int:
    """The row that a node begins in. By its place: in tree-sitter 0.26.0 `Point.row` and `.column`
    hand out what they do not own, and the process crashes after the first rows past 256.
    """
    return node.start_point[0]


def _parse(language: str, data: bytes) -> Tree | None:
    """The tree of a source, or None. Not `progress_callback`: it crashes in tree-sitter 0.26."""
    parser = _parser(language)
    if parser is None or (LANGUAGES[language].nests_angles and _is_nested(data)):
        return None
    until = thread_time() + MOST_SECONDS
    end, seen = len(data), 0

    def read(at: int, _: Point) -> bytes:
        nonlocal end, seen
        if thread_time() > until:
            # What was read once must stay there, or the parser loses its way and crashes.
            end = min(end, seen)
        stop = min(at + PIECE, end)
        seen = max(seen, stop)
        return data[at:stop]

    tree = parser.parse(read)
    return tree if end == len(data) else None


def _is_nested(data: bytes) -> bool:
    """Whether so many `<` stay open that recovery takes time and memory by their square."""
    if data.count(b"<") <= MOST_ANGLES:
        return False
    return b"<" * MOST_ANGLES in _QUOTED.sub(b"", data).translate(None, _NOT_ANGLES)


def _parser(language: str) -> Parser | None:
    parsers: dict[str, Parser] = _here.__dict__.setdefault("parsers", {})
    if language not in parsers:
        grammar = _grammar(language)
        if grammar is None:
            return None
        parsers[language] = Parser(grammar)
    return parsers[language]


def _cursor(language: str, *, names: bool) -> QueryCursor:
    cursors: dict[tuple[str, bool], QueryCursor] = _here.__dict__.setdefault("cursors", {})
    if (language, names) not in cursors:
        cursors[language, names] = QueryCursor(_query(language, names=names))
    return cursors[language, names]


@cache
def _grammar(language: str) -> Grammar | None:
    if language not in LANGUAGES:
        return None
    known = LANGUAGES[language]
    made: object = getattr(import_module(known.module), known.function)()
    return Grammar(made)


@cache
def _query(language: str, *, names: bool) -> Query:
    grammar = _grammar(language)
    assert grammar is not None
    known = LANGUAGES[language]
    parts = [_source(name) for name in (known.extends, known.query or language) if name]
    # Names are most of what there is: to leave them out takes a third of the time away.
    return Query(grammar, "\n".join(part if names else part.partition("\n\n")[2] for part in parts))


def _source(name: str) -> str:
    """A query's text; what it finds of names comes before its first empty line."""
    return (files("dodona.tools.code") / "queries" / f"{name}.scm").read_text("utf-8")
