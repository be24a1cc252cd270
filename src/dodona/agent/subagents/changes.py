"""The changes that a subagent has made, for a report about work that it did not finish."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from dodona.core.chunks import ToolCallChunk, ToolResultChunk
from dodona.core.ports.tools import Toolbox

MAX_CHANGES: Final = 50  # that are listed
MAX_VALUE_CHARS: Final = 120  # a longer argument, such as the text of a note, is left out


class ChangeLog:
    """The calls of tools that write, collected from the chunks of a subagent.

    Also calls of a turn that was interrupted are in it, and those that a replay applies.
    """

    def __init__(self, toolbox: Toolbox) -> None:
        self._toolbox = toolbox
        self._completed: list[str] = []
        self._pending: dict[str, str] = {}  # by the id of the call

    def record(self, chunk: object) -> None:
        """Record a call, or its result; other chunks are ignored."""
        if isinstance(chunk, ToolCallChunk):
            tool = self._toolbox.find(chunk.name)
            if tool is not None and tool.writes:
                self._pending[chunk.id] = _describe(chunk.name, chunk.arguments)
        elif isinstance(chunk, ToolResultChunk):
            call = self._pending.pop(chunk.id, "")
            if call and chunk.status == "success":
                self._completed.append(call)

    def report(self) -> str:
        """Return the changes as text for the calling agent."""
        lines: list[str] = []
        if self._completed:
            lines.append(f"Completed: {_join(self._completed)}")
        if self._pending:
            lines.append(f"Outcome unknown, verify it: {_join([*self._pending.values()])}")
        return "\n".join(lines) or "It changed nothing."


def _join(calls: list[str]) -> str:
    omitted = len(calls) - MAX_CHANGES
    more = f"; and {omitted} more" if omitted > 0 else ""
    return f"{'; '.join(calls[:MAX_CHANGES])}{more}."


def _describe(name: str, arguments: object) -> str:
    is_object = isinstance(arguments, Mapping)
    values = cast("Mapping[str, Any]", arguments) if is_object else dict[str, Any]()
    shown = (f"{key}={value}" for key, value in values.items() if _is_short(value))
    return f"{name}({', '.join(shown)})"


def _is_short(value: object) -> bool:
    return value != "" and len(str(value)) <= MAX_VALUE_CHARS
