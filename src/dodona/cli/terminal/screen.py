"""Show an answer as it streams: its text on standard output, everything else on standard error."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any, Final

from dodona.cli.client.in_process import ChunkJson
from dodona.cli.terminal.output import print_note, print_text

MAX_WIDTH: Final = 100

# Characters that move the cursor, set colours or change the text direction: an answer may contain
# untrusted text. Lone surrogates cannot be encoded at all.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
# A paragraph in emphasis that arrives as a whole, such as the notice of the embedded default.
_REMARK = re.compile(r"\*([^*\n]+)\*(\s*)")
_DIM: Final = "\x1b[2m{}\x1b[0m"


class Screen:
    """Shows the chunks of one answer. Printed text cannot be erased, so a restart prints a note."""

    def __init__(self, *, shows_thinking: bool = False) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._uses_dim = self._is_terminal and not os.environ.get("NO_COLOR")
        self._is_shared = self._is_terminal and sys.stdout.isatty()
        self._shows_thinking = shows_thinking or self._is_terminal
        self._texts: list[tuple[int, str]] = []
        self._sources: list[tuple[int, str]] = []
        self._is_line_open = False  # the last line of the answer has no newline yet
        self._is_thinking_open = False  # the last line of thinking has no newline yet
        self.context_id: str | None = None  # set when the answer is complete

    def show(self, chunk: ChunkJson) -> None:
        """Print one chunk."""
        match chunk["type"]:
            case "content":
                self._print_content(chunk["seq"], strip_control_chars(chunk["content"]))
            case "thinking":
                self._print_thinking(strip_control_chars(chunk["content"]))
            case "source":
                self._sources.append((chunk["seq"], _format_source(chunk)))
            case "tool_call":
                self._end_line()
                self._print_note(
                    f"→ {_agent_prefix(chunk)}{chunk['name']} {format_brief(chunk['arguments'])}"
                )
            case "tool_result" if chunk["status"] == "error":
                self._print_note(
                    f"✗ {_agent_prefix(chunk)}{chunk['name']}: {format_brief(chunk['result'])}"
                )
            case "system":
                self._print_note(f"! {strip_control_chars(chunk['system_message'])}")
            case "approval":
                self._print_note(
                    f"? {_agent_prefix(chunk)}{chunk['name']} needs approval: "
                    f"{' '.join(strip_control_chars(chunk['reason']).split())}"
                )
            case "restart":
                self._restart(chunk)
            case "done":
                self._finish(chunk)
            case _:
                pass  # not shown

    def close(self) -> None:
        """End any open line."""
        self._end_line()
        self._end_thinking()

    def _print_content(self, seq: int, text: str) -> None:
        if not text:
            return
        self._end_thinking()
        self._texts.append((seq, text))
        remark = _REMARK.fullmatch(text) if self._uses_dim and self._is_shared else None
        print_text(f"{_DIM.format(remark[1])}{remark[2]}" if remark else text, end="")
        self._is_line_open = not text.endswith("\n")

    def _print_thinking(self, text: str) -> None:
        if self._shows_thinking and text:
            if self._is_shared:
                self._end_line()
            print_note(self._dim(text), end="")
            self._is_thinking_open = not text.endswith("\n")

    def _print_note(self, text: str) -> None:
        """Print a line to standard error. On a shared terminal, first end the answer's line."""
        self._end_thinking()
        if self._is_shared:
            self._end_line()
        print_note(self._dim(text))

    def _restart(self, chunk: ChunkJson) -> None:
        last_seq = chunk["discard_after"]
        has_discarded = any(seq > last_seq for seq, _ in self._texts)
        self._texts = [each for each in self._texts if each[0] <= last_seq]
        self._sources = [each for each in self._sources if each[0] <= last_seq]
        self._end_line()
        self._print_note(f"! {strip_control_chars(chunk['reason'])} The run was resumed.")
        if has_discarded:
            self._print_note("! The answer starts over:")
            text = "".join(text for _, text in self._texts)
            print_text(text, end="")
            self._is_line_open = bool(text) and not text.endswith("\n")

    def _finish(self, chunk: ChunkJson) -> None:
        self.close()
        self.context_id = chunk["context_id"]
        if self._sources:
            sources = dict.fromkeys(text for _, text in self._sources)
            print_text("\nSources:\n" + "\n".join(f"  {text}" for text in sources))
        if self._is_terminal:
            used = f"{chunk['tokens_used']:,} tokens"
            self._print_note(
                f"run {chunk['run_id']} · {strip_control_chars(chunk['model_used'])} · {used}"
            )

    def _end_line(self) -> None:
        if self._is_line_open:
            print_text()
            self._is_line_open = False

    def _end_thinking(self) -> None:
        if self._is_thinking_open:
            print_note("")
            self._is_thinking_open = False

    def _dim(self, text: str) -> str:
        return _DIM.format(text) if self._uses_dim else text


def strip_control_chars(text: str) -> str:
    """Remove control characters that a terminal would interpret."""
    return _UNPRINTABLE.sub("", text)


def _agent_prefix(chunk: ChunkJson) -> str:
    """Name the subagent that made a call; empty for the main agent."""
    return f"{strip_control_chars(chunk['agent'])}: " if "agent" in chunk else ""


def _format_source(chunk: ChunkJson) -> str:
    lines = f":{chunk['lines']}" if chunk.get("lines") else ""
    return strip_control_chars(f"{chunk['path']}{lines}  {chunk.get('title', '')}".rstrip())


def format_exact(value: Any) -> str:
    """Return a JSON value on one line, with an escape for each invisible character.

    For a decision of a person: nothing is left out.
    """
    text = json.dumps(value, ensure_ascii=False)
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def format_brief(value: Any) -> str:
    """Format a value on one line, truncated to fit."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = strip_control_chars(" ".join(text.split()))
    return text if len(text) <= MAX_WIDTH else f"{text[:MAX_WIDTH]}…"
