"""Detects the language of a source file, parses it and runs the query of that language.

Grammars are imported on use. Parsers and cursors are per thread. Parsing holds the GIL, so the
source is passed in pieces: other threads run in between, and a file that takes too long is dropped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.resources import files
from threading import local
from time import thread_time
from typing import Final, TypeAlias

from tree_sitter import Language as Grammar
from tree_sitter import Node, Parser, Point, Query, QueryCursor, Tree

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


# -- languages -------------------------------------------------------------------------------------

TEXT: Final = "text"  # the language of all other files


@dataclass(frozen=True, slots=True)
class Language:
    """A language with a grammar."""

    name: str
    grammar_module: str
    grammar_function: str = "language"  # function of the module that returns the grammar
    query_file: str = ""  # if it differs from the language name
    base_query_file: str = ""  # a query that also applies
    function_keyword: str = "function"  # used in chunk titles
    nests_angles: bool = False  # its grammar tries each `<` as an opening bracket


LANGUAGES: Final = {
    language.name: language
    for language in (
        Language("bash", "tree_sitter_bash", nests_angles=True),
        Language("c", "tree_sitter_c"),
        Language("cpp", "tree_sitter_cpp", base_query_file="c", nests_angles=True),
        Language("csharp", "tree_sitter_c_sharp", query_file="c_sharp", nests_angles=True),
        Language("go", "tree_sitter_go", function_keyword="func"),
        Language("java", "tree_sitter_java", nests_angles=True),
        Language("javascript", "tree_sitter_javascript", base_query_file="ecmascript"),
        Language("php", "tree_sitter_php", "language_php"),
        Language("python", "tree_sitter_python", function_keyword="def"),
        Language("ruby", "tree_sitter_ruby", function_keyword="def"),
        Language("rust", "tree_sitter_rust", function_keyword="fn"),
        Language(
            "tsx",
            "tree_sitter_typescript",
            "language_tsx",
            query_file="typescript",
            base_query_file="ecmascript",
            nests_angles=True,
        ),
        Language(
            "typescript",
            "tree_sitter_typescript",
            "language_typescript",
            base_query_file="ecmascript",
            nests_angles=True,
        ),
    )
}

_EXTENSIONS: Final = {
    "bash": "sh bash zsh ksh bats ebuild",
    "c": "c h",
    "cpp": "cc cpp cxx c++ hh hpp hxx h++ ipp inl tpp cu cuh",
    "csharp": "cs csx",
    "go": "go",
    "java": "java",
    "javascript": "js jsx mjs cjs",
    "php": "php php5 phtml",
    "python": "py pyi pyw",
    "ruby": "rb rake gemspec ru",
    "rust": "rs",
    "tsx": "tsx",
    "typescript": "ts mts cts",
}
_LANGUAGE_BY_EXTENSION: Final = {
    ending: name for name, all_ in _EXTENSIONS.items() for ending in all_.split()
}
_LANGUAGE_BY_FILENAME: Final = {
    "rakefile": "ruby",
    "gemfile": "ruby",
    "podfile": "ruby",
    "vagrantfile": "ruby",
    "sconstruct": "python",
    "sconscript": "python",
    ".bashrc": "bash",
    ".bash_profile": "bash",
    ".profile": "bash",
    ".zshrc": "bash",
    "pkgbuild": "bash",
}
_SHEBANG = re.compile(rb"#![ \t]*\S*?(?:/env(?:[ \t]+-\S+)*[ \t]+)?([\w.+-]+)(?:[ \t\r\n]|$)")
_LANGUAGE_BY_INTERPRETER: Final = {
    "python": "python",
    "pypy": "python",
    "sh": "bash",
    "bash": "bash",
    "dash": "bash",
    "ksh": "bash",
    "zsh": "bash",
    "node": "javascript",
    "nodejs": "javascript",
    "bun": "typescript",
    "deno": "typescript",
    "ts-node": "typescript",
    "ruby": "ruby",
    "php": "php",
}
# A C compiler rejects these: a header with one of them is C++.
_CPP_HEADER = re.compile(rb"^[ \t]*(?:class|namespace|template|using|public:|private:)\b", re.M)


def language_of(path: str, head: bytes) -> str:
    """Return the language of a file by its extension, name or first line; else "text"."""
    name = path.rsplit("/", 1)[-1].lower()
    stem, dot, ending = name.rpartition(".")
    language = _LANGUAGE_BY_FILENAME.get(name) or (
        _LANGUAGE_BY_EXTENSION.get(ending) if dot and stem else None
    )
    if language == "c" and ending == "h" and _CPP_HEADER.search(head):
        return "cpp"
    return language or _language_by_shebang(head.removeprefix(b"\xef\xbb\xbf")) or TEXT


def _language_by_shebang(head: bytes) -> str | None:
    match = _SHEBANG.match(head)
    if match is None:
        return None
    return _LANGUAGE_BY_INTERPRETER.get(match[1].decode("ascii", "replace").rstrip("0123456789."))
