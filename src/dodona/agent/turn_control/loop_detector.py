"""Loop detection: repeated tool calls, compared by tool name and key arguments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, cast

import msgspec

from dodona.core.messages import ToolCall

KEY_ARGUMENTS: Final = ("path", "query", "thread_id", "file_path")
# Which part of the result to return. A model that pages through a file or a thread makes progress.
RANGE_ARGUMENTS: Final = (
    *("first", "last", "lines", "range", "start", "end", "start_line", "end_line"),
    *("offset", "skip", "page", "cursor", "page_token", "after", "before", "from", "to"),
)
WINDOW: Final = 6
THRESHOLD: Final = 3


class LoopDetector(msgspec.Struct, frozen=True):
    """The last rounds of tool calls. A run gets at most one loop warning."""

    patterns: tuple[str, ...] = ()
    has_warned: bool = False

    def observe(self, calls: Sequence[ToolCall]) -> tuple[LoopDetector, str]:
        """Return the detector after a round of calls, and the pattern of a loop, else ""."""
        pattern = pattern_of(calls)
        recent = (*self.patterns, pattern)[-WINDOW:]
        is_loop = not self.has_warned and recent.count(pattern) >= THRESHOLD
        return LoopDetector(recent, self.has_warned or is_loop), pattern if is_loop else ""


def pattern_of(calls: Sequence[ToolCall]) -> str:
    """Return a round of calls as text, sorted: `vault_read(path=a.md)|vault_search(…)`."""
    return "|".join(sorted(_signature(call) for call in calls))


def _signature(call: ToolCall) -> str:
    try:
        parsed: object = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return f"{call.name}({call.arguments[:80]})"
    arguments = cast("dict[str, object]", parsed) if isinstance(parsed, dict) else {}
    if not any(name in arguments for name in KEY_ARGUMENTS):
        # Compare all arguments: otherwise different calls would look the same.
        return f"{call.name}({call.arguments[:200]})"
    names = (name for name in (*KEY_ARGUMENTS, *RANGE_ARGUMENTS) if name in arguments)
    return f"{call.name}({','.join(f'{name}={arguments[name]}' for name in names)})"
