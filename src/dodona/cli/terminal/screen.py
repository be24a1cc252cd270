"""An answer as people see it come: its text on standard output, all else beside it."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any, Final

from dodona.cli.client.in_process import ChunkJson
from dodona.cli.terminal.output import print_note, print_text

MAX_WIDTH: Final = 100

# What would move the cursor, colour the screen or turn the direction of reading: an answer holds
# what strangers wrote. Halves of characters cannot be written at all.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_DIM: Final = "\x1b[2m{}\x1b[0m"


class Screen:
    """Shows the chunks of one answer. Nothing can be taken back, so what is dropped is said."""

    def __init__(self, *, shows_thinking: bool = False) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._uses_dim = self._is_terminal and not os.environ.get("NO_COLOR")
        self._is_shared = self._is_terminal and sys.stdout.isatty()
        self._shows_thinking = shows_thinking or self._is_terminal
        self._texts: list[tuple[int, str]] = []
        self._sources: list[tuple[int, str]] = []
        self._is_line_open = False  # a line of the answer has not ended
        self._is_thinking_open = False  # a line of thoughts has not ended
        self.context_id: str | None = None  # to go on from, once the answer has ended

    def show(self, chunk: ChunkJson) -> None:
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
                    f"? {_agent_prefix(chunk)}{chunk['name']} waits for you: {format_brief(chunk['reason'])}"
                )
            case "restart":
                self._restart(chunk)
            case "done":
                self._finish(chunk)
            case _:
                pass  # nothing for people

    def close(self) -> None:
        """End the line, whatever came."""
        self._end_line()
        self._end_thinking()

    def _print_content(self, seq: int, text: str) -> None:
        if not text:
            return
        self._end_thinking()
        self._texts.append((seq, text))
        print_text(text, end="")
        self._is_line_open = not text.endswith("\n")

    def _print_thinking(self, text: str) -> None:
        if self._shows_thinking and text:
            if self._is_shared:
                self._end_line()
            print_note(self._dim(text), end="")
            self._is_thinking_open = not text.endswith("\n")

    def _print_note(self, text: str) -> None:
        """A line beside the answer, which begins at the left even on the same screen."""
        self._end_thinking()
        if self._is_shared:
            self._end_line()
        print_note(self._dim(text))

    def _restart(self, chunk: ChunkJson) -> None:
        kept = chunk["discard_after"]
        is_dropped = any(seq > kept for seq, _ in self._texts)
        self._texts = [known for known in self._texts if known[0] <= kept]
        self._sources = [known for known in self._sources if known[0] <= kept]
        self._end_line()
        self._print_note(f"! {strip_control_chars(chunk['reason'])} The run was taken up again.")
        if is_dropped:
            self._print_note("! The answer begins again:")
            text = "".join(text for _, text in self._texts)
            print_text(text, end="")
            self._is_line_open = bool(text) and not text.endswith("\n")

    def _finish(self, chunk: ChunkJson) -> None:
        self.close()
        self.context_id = chunk["context_id"]
        if self._sources:
            listed = dict.fromkeys(text for _, text in self._sources)
            print_text("\nSources:\n" + "\n".join(f"  {text}" for text in listed))
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
    """Text that a terminal shows and does not obey."""
    return _UNPRINTABLE.sub("", text)


def _agent_prefix(chunk: ChunkJson) -> str:
    """Who made a call, if it was not the Oracle."""
    return f"{strip_control_chars(chunk['agent'])}: " if "agent" in chunk else ""


def _format_source(chunk: ChunkJson) -> str:
    lines = f":{chunk['lines']}" if chunk.get("lines") else ""
    return strip_control_chars(f"{chunk['path']}{lines}  {chunk.get('title', '')}".rstrip())


def format_brief(value: Any) -> str:
    """On one line that fits."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = strip_control_chars(" ".join(text.split()))
    return text if len(text) <= MAX_WIDTH else f"{text[:MAX_WIDTH]}…"
