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

MAX_QUOTES: Final = 5
MAX_QUOTED_CHARS: Final = 1_500
MAX_NAME_CHARS: Final = 120

NO_MODEL_NOTICE: Final = (
    "No language model is configured: this answer only quotes what the tools returned. "
    "To get one, set a key such as ANTHROPIC_API_KEY or start Ollama; `dodona status` says more."
)
NO_USABLE_TOOLS: Final = (
    "It can only quote from tools, and none of those offered here can be asked this question."
)
NO_TERMS: Final = "The question has no words to search for. Name what you are looking for."

# Control characters (tab and line ends aside), those that turn the direction of text around, and
# halves of surrogate pairs.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)
# A tag or comment; `a < b` stays as it is.
_HTML_TAG = re.compile(r"<(?=[A-Za-z/!?])")


def format_answer(
    ranked: Sequence[tuple[float, Passage]],
    *,
    search_summary: str,
    failed_results: Sequence[ToolResult],
) -> str:
    """The notice, the best quotes with their sources, and what failed."""
    quotes = list(_format_quotes(ranked))
    parts = [NO_MODEL_NOTICE, *quotes]
    if not quotes:
        parts.append(f"Nothing that fits the question was found. {search_summary}".strip())
    parts += [
        f"{_code_span(result.name)} failed: {_code_span(result.text)}" for result in failed_results
    ]
    return "\n\n".join(parts) + "\n"


def _format_quotes(ranked: Sequence[tuple[float, Passage]]) -> Iterator[str]:
    """The best passages that say something new, within the limits; at least the first."""
    taken: list[str] = []
    room = MAX_QUOTED_CHARS
    for score, passage in ranked:
        if score <= 0 or len(taken) == MAX_QUOTES:
            return
        text = strip_unprintable(passage.text).strip("\n")
        same = " ".join(text.split())
        if not same or any(same in other or other in same for other in taken):
            continue
        if taken and len(text) > room:
            continue
        taken.append(same)
        room -= len(text)
        yield f"{format_block_quote(text)}\n\n— {format_citation(passage)}"


def format_block_quote(text: str) -> str:
    """Text that stays inside its quote whatever Markdown it holds."""
    inert = _HTML_TAG.sub("&lt;", text).replace("![", "!\\[")
    return "\n".join(f"> {line}".rstrip() for line in inert.splitlines())


def format_citation(passage: Passage) -> str:
    """Where a passage is from: the tool, the path and the lines, as far as they are known."""
    place = _code_span(passage.tool)
    if passage.path:
        place += f" · {_code_span(passage.path)}"
    if passage.first_line and passage.last_line > passage.first_line:
        return f"{place}, lines {passage.first_line}–{passage.last_line}"
    return f"{place}, line {passage.first_line}" if passage.first_line else place


def strip_unprintable(text: str) -> str:
    """Text without the characters that terminals and renderers take for orders."""
    return _UNPRINTABLE.sub("", text)


def _code_span(name: str) -> str:
    """A name from outside as a code span in one line."""
    line = " ".join(strip_unprintable(name[: 4 * MAX_NAME_CHARS]).replace("`", "'").split())
    return f"`{line if len(line) <= MAX_NAME_CHARS else line[: MAX_NAME_CHARS - 1] + '…'}`"
