"""Format the answer of the extractive model: a notice, quotes, and their sources.

Tool results are untrusted text. A quote cannot break out of its block quote, fake another source,
load an image or send control sequences to a terminal.
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
    "No language model is configured, so this answer only quotes tool results. To configure one, "
    "set an API key such as ANTHROPIC_API_KEY or start Ollama; `dodona status` shows details."
)
NO_USABLE_TOOLS: Final = (
    "Only tool results can be quoted, and none of the available tools can search for this question."
)
NO_TERMS: Final = "The question contains no search terms. Name what you are looking for."

# Control characters except tab and line breaks, bidirectional overrides, and lone surrogates.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)
# The start of a tag or comment; `a < b` does not match.
_HTML_TAG = re.compile(r"<(?=[A-Za-z/!?])")


def format_answer(
    ranked: Sequence[tuple[float, Passage]],
    *,
    search_summary: str,
    failed_results: Sequence[ToolResult],
) -> str:
    """Format the notice, the best quotes with their sources, and failed tool calls."""
    quotes = list(_format_quotes(ranked))
    parts = [NO_MODEL_NOTICE, *quotes]
    if not quotes:
        parts.append(f"Nothing relevant to the question was found. {search_summary}".strip())
    parts += [
        f"{_code_span(result.name)} failed: {_code_span(result.text)}" for result in failed_results
    ]
    return "\n\n".join(parts) + "\n"


def _format_quotes(ranked: Sequence[tuple[float, Passage]]) -> Iterator[str]:
    """Yield the best passages without repetitions, within the limits; at least the first."""
    quoted: list[str] = []
    remaining = MAX_QUOTED_CHARS
    for score, passage in ranked:
        if score <= 0 or len(quoted) == MAX_QUOTES:
            return
        text = strip_unprintable(passage.text).strip("\n")
        normalized = " ".join(text.split())
        if not normalized or any(normalized in each or each in normalized for each in quoted):
            continue
        if quoted and len(text) > remaining:
            continue
        quoted.append(normalized)
        remaining -= len(text)
        yield f"{format_block_quote(text)}\n\n— {format_citation(passage)}"


def format_block_quote(text: str) -> str:
    """Format text as a block quote that no Markdown inside it can end."""
    escaped = _HTML_TAG.sub("&lt;", text).replace("![", "!\\[")
    return "\n".join(f"> {line}".rstrip() for line in escaped.splitlines())


def format_citation(passage: Passage) -> str:
    """Format the source of a passage: the tool and, if known, the path and the lines."""
    source = _code_span(passage.tool)
    if passage.path:
        source += f" · {_code_span(passage.path)}"
    if passage.first_line and passage.last_line > passage.first_line:
        return f"{source}, lines {passage.first_line}–{passage.last_line}"
    return f"{source}, line {passage.first_line}" if passage.first_line else source


def strip_unprintable(text: str) -> str:
    """Remove characters that terminals and renderers interpret as commands."""
    return _UNPRINTABLE.sub("", text)


def _code_span(name: str) -> str:
    """Format an untrusted name as a code span on one line."""
    line = " ".join(strip_unprintable(name[: 4 * MAX_NAME_CHARS]).replace("`", "'").split())
    return f"`{line if len(line) <= MAX_NAME_CHARS else line[: MAX_NAME_CHARS - 1] + '…'}`"
