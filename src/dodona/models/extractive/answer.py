"""Formats the answer of the extractive model: quotations, related titles, and a notice at the end.

Tool results are untrusted text. A quotation cannot break out of its block quote, fake another
source, load an image or send control sequences to a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from dodona.core.messages import ToolResult
from dodona.models.extractive.passages import Findings, Passage

MAX_QUOTED_CHARS: Final = 4_000
MAX_NAME_CHARS: Final = 120

NO_MODEL_NOTICE: Final = (
    "*No language model is configured: answers are quotations. To get written answers, set an API "
    "key such as ANTHROPIC_API_KEY or start Ollama; `dodona status` shows details.*"
)
NO_USABLE_TOOLS: Final = "None of the available tools can search for this."
NO_WORDS: Final = "The question contains nothing to search for. Name what you are looking for."

# Control characters except tab and line breaks, bidirectional overrides, and lone surrogates.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff]"
)
# The start of a tag or comment; `a < b` does not match.
_HTML_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_FENCE = re.compile(r"^ {0,3}(```|~~~)", re.MULTILINE)


def format_answer(findings: Findings, failed: Sequence[ToolResult]) -> str:
    """Format the quotations with their sources, related titles, and failed tool calls."""
    return "\n\n".join([*_format_findings(findings), *map(_format_failure, failed)])


def _format_findings(findings: Findings) -> Iterator[str]:
    if not findings.quotes:
        words = ", ".join(map(_code_span, findings.unknown))
        missing = f" These words occur nowhere in it: {words}." if words else ""
        yield f"Nothing in this project answers the question.{missing}"
        return
    for passage in map(cut_passage, findings.quotes):
        yield format_block_quote(passage.text)
        yield f"— {format_citation(passage)}"
    if findings.see_also:
        titles = (f"- {_format_title(passage)}" for passage in findings.see_also)
        yield "See also:\n\n" + "\n".join(titles)


def _format_title(passage: Passage) -> str:
    """Format a passage that was not quoted. This is no citation: its text was not shown."""
    title = _one_line(passage.title).translate(_MARKUP)
    place = _code_span(passage.path)
    if passage.first:
        place += f" (lines {passage.first}–{passage.last})"
    return f"{title} — {place}" if title else place


def _format_failure(result: ToolResult) -> str:
    return f"{_code_span(result.name)} failed: {_code_span(result.text)}"


def cut_passage(passage: Passage) -> Passage:
    """Return a passage, cut after a line if it is too long; a fence that is open is closed."""
    text = strip_unprintable(passage.text).strip("\n")
    if len(text) <= MAX_QUOTED_CHARS:
        return replace(passage, text=text)
    start = text[:MAX_QUOTED_CHARS]
    start = start[: start.rfind("\n") + 1 or len(start)].rstrip()
    last = passage.first + start.count("\n") if passage.first else 0
    fences = _FENCE.findall(start)
    end = "\n…" + (f"\n{fences[-1]}" if len(fences) % 2 else "")
    return replace(passage, text=start + end, last=last)


def format_block_quote(text: str) -> str:
    """Format text as a block quote that no Markdown inside it can end."""
    escaped = _HTML_TAG.sub("&lt;", text).replace("![", "!\\[")
    return "\n".join(f"> {line}".rstrip() for line in escaped.splitlines())


def format_citation(passage: Passage) -> str:
    """Format the source of a passage: its path and, if known, the lines."""
    source = _code_span(passage.path or passage.title or "tool result")
    if passage.first and passage.last > passage.first:
        return f"{source}, lines {passage.first}–{passage.last}"
    return f"{source}, line {passage.first}" if passage.first else source


def strip_unprintable(text: str) -> str:
    """Remove characters that terminals and renderers interpret as commands."""
    return _UNPRINTABLE.sub("", text)


# A terminal shows escapes as they are. Inside a line, `_` and `>` are harmless.
_MARKUP: Final = str.maketrans({"`": "", "*": "", **{char: f"\\{char}" for char in "\\[]<"}})


def _one_line(text: str) -> str:
    line = " ".join(strip_unprintable(text[: 4 * MAX_NAME_CHARS]).split())
    return line if len(line) <= MAX_NAME_CHARS else line[: MAX_NAME_CHARS - 1] + "…"


def _code_span(name: str) -> str:
    """Format an untrusted name as a code span on one line."""
    return f"`{_one_line(name.replace('`', chr(39)))}`"
