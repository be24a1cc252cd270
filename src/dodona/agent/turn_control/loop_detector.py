"""Going in circles: the same calls again and again, seen by names and key arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from dodona.core.messages import ToolCall

KEY_ARGUMENTS: Final = ("path", "query", "thread_id", "file_path")
WINDOW: Final = 6
THRESHOLD: Final = 3


@dataclass(frozen=True, slots=True)
class LoopDetector:
    """The last rounds of calls; a loop is told once in a run."""

    patterns: tuple[str, ...] = ()
    has_warned: bool = False

    def observe(self, calls: Sequence[ToolCall]) -> tuple[LoopDetector, str]:
        """What is remembered after a round, and its pattern if that makes a loop; else nothing."""
        pattern = pattern_of(calls)
        recent = (*self.patterns, pattern)[-WINDOW:]
        is_loop = not self.has_warned and recent.count(pattern) >= THRESHOLD
        return LoopDetector(recent, self.has_warned or is_loop), pattern if is_loop else ""

    def as_json(self) -> dict[str, Any]:
        return {"patterns": list(self.patterns), "has_warned": self.has_warned}

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> LoopDetector:
        return cls(tuple(record["patterns"]), record["has_warned"])


def pattern_of(calls: Sequence[ToolCall]) -> str:
    """A round of calls in short, whatever their order: `vault_read(path=a.md)|vault_search(…)`."""
    return "|".join(sorted(_signature(call) for call in calls))


def _signature(call: ToolCall) -> str:
    try:
        parsed: object = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return f"{call.name}({call.arguments[:80]})"
    given = cast("dict[str, object]", parsed) if isinstance(parsed, dict) else {}
    told = ",".join(f"{name}={given[name]}" for name in KEY_ARGUMENTS if name in given)
    # Without key arguments nothing is left out: else different calls would look alike.
    return f"{call.name}({told or call.arguments[:200]})"
