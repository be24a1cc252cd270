"""Detects the language of a file by its extension, its name or its first line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

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
