"""Parses text into forms, in one pass and without recursion."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from dodona.core.errors import ReadError, SourceLocation, UnexpectedEnd, did_you_mean
from dodona.lisp.atoms import (
    FormFactory,
    abbreviate,
    atom_factory,
    describe_character,
    plain_character_hint,
)
from dodona.lisp.forms import Form, Keyword, List, Literal, Map, Quote, Vector, children
from dodona.lisp.spans import Source, Span
from dodona.lisp.strings import PLAIN_CHARACTER, read_string, write_string

MAX_DEPTH = 1_000

_TOKEN = re.compile(
    rf"""(?:[ \t\r\n]++|;[^\n]*+)*+(?:
      (?P<open>[(\[{{])
    | (?P<close>[)\]}}])
    | (?P<atom>[^\x00-\x20()\[\]{{}}"'`,;#|\x7f-\xa0\ufeff\ud800-\udfff]++)
    | (?P<plain>"{PLAIN_CHARACTER}*+")
    | (?P<string>")
    | (?P<quote>')
    | (?P<block>\#\|)
    | (?P<bad>.)
    )""",
    re.VERBOSE | re.DOTALL,
)
_BLANKS = re.compile(r"^[ \t]*+", re.MULTILINE)
_BLOCK_EDGE = re.compile(r"#\||\|#")
_CLOSERS = {"(": ")", "[": "]", "{": "}"}
_EMPTY_QUOTE = "this ' has nothing to quote."
_QUOTE_HINT = "Put a form right after it, or remove it."
_HINTS = {
    ",": "Separate forms with spaces.",
    "`": "Quote with a plain '.",
    "#": "A comment is ; to the end of the line, or #| … |#",
    "|": "A comment is ; to the end of the line, or #| … |#",
}

# An unclosed form: its start offset, and the forms read inside it.
_Unclosed: TypeAlias = tuple[int, Sequence[Form]]


def read(text: str | bytes, file: str = "<text>") -> tuple[Form, ...]:
    """Parse all forms of a text. A byte order mark at the start is ignored."""
    decoded = text if isinstance(text, str) else _decode(text, file)
    return _Reader(Source(file, decoded.removeprefix("\ufeff"))).read_forms()


def read_file(path: Path) -> tuple[Form, ...]:
    """Parse all forms of a regular file."""
    try:
        # Opening a pipe or a device could block forever, or never end.
        if path.exists() and not path.is_file():
            kind = "is a directory" if path.is_dir() else "is not a regular file"
            raise ReadError(f"{path}: {kind}.", hint="Pass a .lisp file.")
        data = path.read_bytes()
    except FileNotFoundError:
        hint = did_you_mean(path.name, _sibling_names(path)) or "Check the path."
        raise ReadError(f"{path}: there is no such file.", hint=hint) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        message = f"{path}: cannot be read ({reason})."
        raise ReadError(message, hint="Check the path and its permissions.") from error
    return read(data, str(path))


@dataclass(slots=True)
class _OpenForm:
    """A form that is not closed yet; the outermost one represents the whole text."""

    opener: str
    start: int
    items: list[Form]


class _Reader:
    """Reads one text once; `_open_forms` holds the forms around the current position."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._text = source.text
        self._position = 0
        self._open_forms = [_OpenForm("", 0, [])]
        self._factories: dict[str, FormFactory] = {}

    def read_forms(self) -> tuple[Form, ...]:
        steps: dict[str | None, Callable[[int, int], None]] = {
            "open": self._open_form,
            "quote": self._open_form,
            "close": self._close_form,
            "plain": self._add_plain_string,
            "string": self._add_string,
            "block": self._skip_block_comment,
            "bad": self._reject_character,
        }
        text, source, factories, add = self._text, self._source, self._factories, self._add_form
        while token := _TOKEN.match(text, self._position):
            kind = token.lastgroup
            start, end = token.span(kind or 0)
            self._position = end
            # Most tokens are atoms: saving a call for each is worth a special case.
            if kind == "atom":
                word = text[start:end]
                factory = factories.get(word) or self._factory_for(word, start)
                add(factory(Span(source, start, end)))
            else:
                steps[kind](start, end)
        if len(self._open_forms) > 1:
            raise self._unclosed_error()
        return tuple(self._open_forms[0].items)

    def _add_form(self, form: Form) -> None:
        """Add a finished form, wrapped in the quotes right before it, to the open form."""
        frame = self._open_forms[-1]
        while frame.opener == "'":
            form = Quote(form, Span(self._source, frame.start, form.span.end))
            self._open_forms.pop()
            frame = self._open_forms[-1]
        frame.items.append(form)

    def _open_form(self, start: int, end: int) -> None:
        if len(self._open_forms) > MAX_DEPTH:
            message = f"forms are nested more than {MAX_DEPTH:,} deep here."
            hint = "Move the inner forms elsewhere and refer to them by name."
            raise ReadError(message, where=self._location_at(start), hint=hint)
        self._open_forms.append(_OpenForm(self._text[start:end], start, []))

    def _close_form(self, start: int, end: int) -> None:
        closer = self._text[start]
        frame = self._open_forms[-1]
        if _CLOSERS.get(frame.opener) != closer:
            raise self._mismatch_error(frame, start)
        self._open_forms.pop()
        span = Span(self._source, frame.start, end)
        if closer == ")":
            self._add_form(List(tuple(frame.items), span))
        elif closer == "]":
            self._add_form(Vector(tuple(frame.items), span))
        else:
            self._add_form(Map(_pair_items(frame.items), span))

    def _factory_for(self, word: str, start: int) -> FormFactory:
        """Create and cache the factory of a word that occurs for the first time."""
        factory = self._factories[word] = atom_factory(word, self._source, start)
        return factory

    def _add_plain_string(self, start: int, end: int) -> None:
        self._add_form(Literal(self._text[start + 1 : end - 1], Span(self._source, start, end)))

    def _add_string(self, start: int, _end: int) -> None:
        value, self._position = read_string(self._source, start)
        self._add_form(Literal(value, Span(self._source, start, self._position)))

    def _skip_block_comment(self, start: int, end: int) -> None:
        depth = 1
        for edge in _BLOCK_EDGE.finditer(self._text, end):
            depth += 1 if edge[0] == "#|" else -1
            if depth == 0:
                self._position = edge.end()
                return
        hint = "Add '|#' to it." if depth == 1 else f"Comments nest: add '|#' {depth:,} times."
        raise UnexpectedEnd(
            "this comment is never closed.", where=self._location_at(start), hint=hint
        )

    def _reject_character(self, start: int, _end: int) -> None:
        character = self._text[start]
        message = f"{describe_character(character)} has no meaning here."
        if self._text.startswith("|#", start):
            message = "this '|#' closes no comment."
        hint = _HINTS.get(character) or plain_character_hint(character) or "Remove it."
        raise ReadError(message, where=self._location_at(start), hint=hint)

    def _location_at(self, offset: int) -> SourceLocation:
        return Span(self._source, offset, offset + 1).location()

    def _mismatch_error(self, frame: _OpenForm, start: int) -> ReadError:
        """Explain why the delimiter at `start` cannot close the frame."""
        closer, where = self._text[start], self._location_at(start)
        if frame.opener == "":
            line = _find_indented_top_level(self._source, frame.items)
            hint = f"Or there is one too many before line {line}." if line else ""
            message = f"this '{closer}' closes nothing: nothing is open here."
            return ReadError(message, where=where, hint=f"Remove it. {hint}".rstrip())
        if frame.opener == "'":
            return ReadError(_EMPTY_QUOTE, where=self._location_at(frame.start), hint=_QUOTE_HINT)
        opener = Span(self._source, frame.start, frame.start + 1)
        message = f"this '{closer}' cannot close the '{frame.opener}' at {opener}."
        hint = f"Close that with '{_CLOSERS[frame.opener]}' first."
        return ReadError(message, where=where, hint=hint)

    def _unclosed_error(self) -> UnexpectedEnd:
        """Explain why the text cannot end here, naming the innermost open form."""
        frame = self._open_forms[-1]
        where = self._location_at(frame.start)
        if frame.opener == "'":
            return UnexpectedEnd(_EMPTY_QUOTE, where=where, hint=_QUOTE_HINT)
        hint = f"Add '{_CLOSERS[frame.opener]}' at the end of the form."
        nested = [(frame.start, frame.items) for frame in self._open_forms[1:]]
        if offsets := _find_misplaced(self._source, nested):
            before, after = (self._source.position(offset)[0] for offset in offsets)
            closer = _CLOSERS.get(self._text[offsets[1]], ")")
            hint = (
                f"Probably '{closer}' is missing before line {before}: by its indentation that "
                f"is not inside the form on line {after}."
            )
        return UnexpectedEnd(f"this '{frame.opener}' is never closed.", where=where, hint=hint)


def _decode(data: bytes, file: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        good = data[: error.start].decode().removeprefix("\ufeff")
        source = Source(file, good + data[error.start :].decode(errors="replace"))
        hint = "Save the text as UTF-8."
        message = f"the byte 0x{data[error.start]:02X} at offset {error.start:,} is not UTF-8."
        where = Span(source, len(good), len(good) + 1).location()
        raise ReadError(message, where=where, hint=hint) from None


def _sibling_names(path: Path) -> list[str]:
    try:
        return [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return []


def _pair_items(items: Sequence[Form]) -> tuple[tuple[Form, Form], ...]:
    """Pair keys with values. Raise ReadError for a missing value or a duplicate key."""
    if len(items) % 2:
        raise ReadError(
            "this last key of the map has no value.",
            where=items[-1].span.location(),
            hint="A map consists of key-value pairs.",
        )
    seen: dict[str, Form] = {}
    for key in items[::2]:
        text = _key_text(key)
        first = seen.setdefault(text, key)
        if first is not key:
            raise ReadError(
                f"the key {abbreviate(text)} is already in the map, at {first.span}.",
                where=key.span.location(),
                hint="Remove one of them.",
            )
    return tuple(zip(items[::2], items[1::2], strict=True))


def _key_text(key: Form) -> str:
    """Return the text that identifies a key.

    Text, not the value: an attacker could choose integers with equal hashes and make lookups
    quadratic. String hashes are randomised.
    """
    if isinstance(key, Keyword):
        return f":{key.name}"
    if isinstance(key, Literal) and isinstance(key.value, str):
        return write_string(key.value)
    if isinstance(key, Literal) and type(key.value) is int:
        return str(key.value)
    raise ReadError(
        "this cannot be a map key.",
        where=key.span.location(),
        hint="Keys are keywords, strings or whole numbers.",
    )


# -- guesses from the indentation where a delimiter is missing or superfluous ------------------


def _find_misplaced(source: Source, nested: Sequence[_Unclosed]) -> tuple[int, int] | None:
    """Return the offsets of the first form that seems misplaced and of the form around it.

    A form is misplaced if it starts a line and is not indented deeper than the line on which
    the form around it starts. A text without any indentation gives no result.
    """
    indents = _line_indents(source)
    if max(indents) == 0:
        return None
    for start, around in _walk_in_order(nested):
        line, column = source.position(start)
        if column - 1 == indents[line - 1] <= indents[source.position(around)[0] - 1]:
            return start, around
    return None


def _find_indented_top_level(source: Source, forms: Sequence[Form]) -> int | None:
    """Return the line of the first top-level form that is indented as if it were nested."""
    indents = _line_indents(source) if len(forms) > 1 else []
    for form in forms[1:]:
        line, column = source.position(form.span.start)
        if column - 1 == indents[line - 1] > 0:
            return line
    return None


def _line_indents(source: Source) -> list[int]:
    """Return the number of leading blanks of each line."""
    return [len(blanks[0]) for blanks in _BLANKS.finditer(source.text)]


def _walk_in_order(nested: Sequence[_Unclosed]) -> Iterator[tuple[int, int]]:
    """Yield the start of each nested form and of the form around it, in source order."""
    for index, (outer, items) in enumerate(nested):
        if index:
            yield outer, nested[index - 1][0]
        work = [(item, outer) for item in reversed(items)]
        while work:
            form, around = work.pop()
            yield form.span.start, around
            work.extend((inner, form.span.start) for inner in reversed(children(form)))
