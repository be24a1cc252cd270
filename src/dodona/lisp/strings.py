r"""Reads and writes string literals. The escapes are \n \t \r \" \\ and \u{HEX}."""

from __future__ import annotations

import re

from dodona.core.errors import ReadError, UnexpectedEnd
from dodona.lisp.atoms import describe_character
from dodona.lisp.spans import Source, Span

# Characters that need no escape in a string: all except its delimiters, surrogates, and
# control characters other than tab and line ends.
PLAIN_CHARACTER = r'[^"\\\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]'

_STRING_PART = re.compile(
    rf"""(?P<plain>{PLAIN_CHARACTER}++)
    | (?P<letters>(?:\\[ntr"\\])++)
    | \\u\{{(?P<code>[0-9A-Fa-f]{{1,6}})\}}
    | (?P<end>")""",
    re.VERBOSE,
)
_TRUNCATED_ESCAPE = re.compile(r"\\(?:u(?:\{[0-9A-Fa-f]{0,6})?)?\Z")
_ESCAPE_LETTERS = str.maketrans("ntr", "\n\t\r")
_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def read_string(source: Source, start: int) -> tuple[str, int]:
    """Return the string whose opening quote is at `start`, and the offset after its end."""
    parts: list[str] = []
    position = start + 1
    while part := _STRING_PART.match(source.text, position):
        kind, content = part.lastgroup, part[part.lastindex or 0]
        if kind == "end":
            return "".join(parts), part.end()
        if kind == "code":
            content = _decode_code_point(int(content, 16), Span(source, position, part.end()))
        elif kind == "letters":
            content = content[1::2].translate(_ESCAPE_LETTERS)
        parts.append(content)
        position = part.end()
    raise _string_error(source, start, position)


def write_string(value: str) -> str:
    """Return the literal of a value, on one line and without invisible characters."""
    if value.isprintable() and '"' not in value and "\\" not in value:
        return f'"{value}"'
    return f'"{"".join(_ESCAPES.get(c) or _escape_character(c) for c in value)}"'


def _escape_character(character: str) -> str:
    if character.isprintable():
        return character
    if 0xD800 <= ord(character) <= 0xDFFF:
        raise ValueError(f"a literal cannot contain {describe_character(character)}")
    return f"\\u{{{ord(character):X}}}"


def _decode_code_point(code: int, span: Span) -> str:
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise ReadError(
            f"U+{code:04X} is not a character.",
            where=span.location(),
            hint="Characters are U+0 to U+D7FF and U+E000 to U+10FFFF.",
        )
    return chr(code)


def _string_error(source: Source, start: int, position: int) -> ReadError:
    """Explain why the string that opens at `start` cannot continue at `position`."""
    if position == len(source.text) or _TRUNCATED_ESCAPE.match(source.text, position):
        where = Span(source, start, start + 1).location()
        return UnexpectedEnd("this string is never closed.", where=where, hint="Add '\"' to it.")
    where = Span(source, position, position + 1).location()
    character, after = source.text[position], source.text[position + 1 : position + 2]
    if character != "\\":
        hint = f"Write \\u{{{ord(character):X}}}." if character.isascii() else "Remove it."
        return ReadError(
            f"a string cannot contain {describe_character(character)}.", where=where, hint=hint
        )
    if after == "u":
        message = "this \\u is not followed by a code of one to six digits in braces."
        return ReadError(message, where=where, hint="Write it as in \\u{1F333}.")
    message = f"'\\' cannot be followed by {describe_character(after)}."
    hint = 'The escapes are \\n \\t \\r \\" \\\\ and \\u{HEX}.'
    return ReadError(message, where=where, hint=hint)
