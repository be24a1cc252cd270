"""The docstring of a tool's function: its description, and those of its parameters.

Book a meeting room.

room: the room's name, as
    in the calendar

Args:
    hours (int): Google's style works too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

_SECTIONS: Final = ("Args:", "Arguments:", "Parameters:")
_ENTRY = re.compile(r"\*{0,2}([^\W\d]\w*)(?: ?\([^)]*\))?:(?: +(.*))?")


@dataclass(slots=True)
class Docstring:
    """The first paragraph, and the description of each parameter by name."""

    description: str = ""
    parameters: dict[str, str] = field(default_factory=dict[str, str])


def parse_docstring(text: str, names: Collection[str]) -> Docstring:
    """Parse a docstring without common indentation; `names` are the function's parameters.

    Outside a section `Args:`, a paragraph describes parameters if it starts with `name: text` in
    lower case. Other paragraphs are prose.
    """
    docstring = Docstring()
    for number, lines in enumerate(_paragraphs(text)):
        if lines[0] in _SECTIONS:
            _read_entries(docstring, _dedent(lines[1:]), names, is_section=True)
        elif number > 0:
            _read_entries(docstring, lines, names)
        else:
            end = next((i for i, line in enumerate(lines) if _is_known(line, names)), len(lines))
            docstring.description = " ".join(line.strip() for line in lines[:end])
            _read_entries(docstring, lines[end:], names)
    return docstring


def _paragraphs(text: str) -> Iterator[list[str]]:
    """Yield the lines of each paragraph. A section ends at the next line that is not indented."""
    lines: list[str] = []
    for line in [*text.splitlines(), ""]:
        is_in_section = bool(lines) and lines[0] in _SECTIONS
        is_end = not line.startswith(" ") if is_in_section else not line.strip()
        is_start = line in _SECTIONS
        if lines and (is_start or (is_end and (line or not is_in_section))):
            yield lines
            lines = []
        if line.strip():
            lines.append(line.rstrip())
    if lines:
        yield lines


def _dedent(lines: list[str]) -> list[str]:
    indent = min((len(line) - len(line.lstrip()) for line in lines), default=0)
    return [line[indent:] for line in lines]


def _read_entries(
    docstring: Docstring, lines: list[str], names: Collection[str], *, is_section: bool = False
) -> None:
    """Read the entries of a paragraph; other lines continue the entry before them."""
    name = None
    for line in lines:
        entry = _ENTRY.fullmatch(line)
        is_entry = entry is not None and (
            is_section or entry[1] in names or (bool(entry[2]) and entry[1].islower())
        )
        if entry is not None and is_entry:
            name = entry[1]
            docstring.parameters[name] = entry[2] or ""
        elif name is None:
            return  # prose
        else:
            docstring.parameters[name] = f"{docstring.parameters[name]} {line.strip()}".strip()


def _is_known(line: str, names: Collection[str]) -> bool:
    entry = _ENTRY.fullmatch(line)
    return entry is not None and entry[1] in names
