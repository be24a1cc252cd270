"""The Lisp dialect of tree files: text to forms and back. Does not depend on trees."""

from dodona.lisp.forms import Form, Keyword, List, Literal, Map, Quote, Symbol, Vector
from dodona.lisp.printer import pretty, to_text
from dodona.lisp.reader import MAX_DEPTH, read, read_file
from dodona.lisp.spans import Source, Span

__all__ = [
    "MAX_DEPTH",
    "Form",
    "Keyword",
    "List",
    "Literal",
    "Map",
    "Quote",
    "Source",
    "Span",
    "Symbol",
    "Vector",
    "pretty",
    "read",
    "read_file",
    "to_text",
]
