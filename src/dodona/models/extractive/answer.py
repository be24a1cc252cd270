"""The answer of a model that is none: quotes, where they are from, and what it cannot do.

Whatever tools returned is quoted text and nothing else. It may be written to deceive, so it cannot
leave its block quote, name another source than its own, load an image or drive a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from dodona.core.messages import ToolResult
from dodona.models.extractive.passages import Passage

MOST_QUOTES: Final = 5
MOST_CHARACTERS: Final = 1_500
LONGEST_NAME: Final = 120

NOTICE: Final = (
    "No language model is configured: this answer only quotes what the tools returned. "
    "To get one, set a key such as ANTHROPIC_API_KEY or start Ollama; `dodona status` says more."
)
ONLY_TOOLS: Final = (
    "It can only quote from tools, and none of those offered here can be asked this question."
)
NO_TERMS: Final = "The question has no words to search for. Name what you are looking for."

# Control characters (tab and line ends aside), those that turn the direction of text around, and
# halves of surrogate pairs.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)
# A tag or comment; `a < b` stays as it is.
_HTML = re.compile(r"<(?=[A-Za-z/!?])")


def answer(
    ranked: Sequence[tuple[float, Passage]], *, searched: str, failed: Sequence[ToolResult]
) -> str:
    """The notice, the best quotes with their sources, and what failed."""
    quotes = list(_quotes(ranked))
    parts = [NOTICE, *quotes]
    if not quotes:
        parts.append(f"Nothing that fits the question was found. {searched}".strip())
    parts += [f"{_named(result.name)} failed: {_named(result.text)}" for result in failed]
    return "\n\n".join(parts) + "\n"


def _quotes(ranked: Sequence[tuple[float, Passage]]) -> Iterator[str]:
    """The best passages that say something new, within the limits; at least the first."""
    taken: list[str] = []
    room = MOST_CHARACTERS
    for score, passage in ranked:
        if score <= 0 or len(taken) == MOST_QUOTES:
            return
        text = printable(passage.text).strip("\n")
        same = " ".join(text.split())
        if not same or any(same in other or other in same for other in taken):
            continue
        if taken and len(text) > room:
            continue
        taken.append(same)
        room -= len(text)
        yield f"{block_quote(text)}\n\n— {citation(passage)}"


def block_quote(text: str) -> str:
    """Text that stays inside its quote whatever Markdown it holds."""
    inert = _HTML.sub("&lt;", text).replace("![", "!\\[")
    return "\n".join(f"> {line}".rstrip() for line in inert.splitlines())


def citation(passage: Passage) -> str:
    """Where a passage is from: the tool, the path and the lines, as far as they are known."""
    place = _named(passage.tool)
    if passage.path:
        place += f" · {_named(passage.path)}"
    if passage.first and passage.last > passage.first:
        return f"{place}, lines {passage.first}–{passage.last}"
    return f"{place}, line {passage.first}" if passage.first else place


def printable(text: str) -> str:
    """Text without the characters that terminals and renderers take for orders."""
    return _UNPRINTABLE.sub("", text)


def _named(name: str) -> str:
    """A name from outside as a code span in one line."""
    line = " ".join(printable(name[: 4 * LONGEST_NAME]).replace("`", "'").split())
    return f"`{line if len(line) <= LONGEST_NAME else line[: LONGEST_NAME - 1] + '…'}`"
