"""Loop detection: repeated tool calls, compared by tool name and key arguments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, cast

import msgspec

from dodona.core.messages import ToolCall

KEY_ARGUMENTS: Final = ("path", "query", "thread_id", "file_path")
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
    text = ",".join(f"{name}={arguments[name]}" for name in KEY_ARGUMENTS if name in arguments)
    # Without key arguments, compare all arguments: otherwise different calls would look the same.
    return f"{call.name}({text or call.arguments[:200]})"
