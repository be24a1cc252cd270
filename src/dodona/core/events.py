"""Events: what happens in a run or in the server. Subscribers match them by dotted type."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from itertools import count
from time import time
from typing import Any, Final

import msgspec

from dodona.core.domain.trust import NO_MARKS, Marks


class Severity(Enum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """The position in the order of severity; higher is worse."""
        return _RANKS[self]


_RANKS: Final = {severity: rank for rank, severity in enumerate(Severity)}

RUN_BEGIN = "run.begin"
RUN_END = "run.end"
QUERY_START = "query.start"
SESSION_RESUMED = "session.resumed"
SESSION_END = "session.end"
AGENT_TURN_START = "agent.turn.start"
AGENT_TURN_END = "agent.turn.end"
AGENT_LOOP_DETECTED = "agent.loop.detected"
AGENT_NO_PROGRESS = "agent.no_progress"
AGENT_ERROR_LIMIT = "agent.error_limit"
BUDGET_ITERATION_WARNING = "budget.iteration.warning"
BUDGET_ITERATION_EXCEEDED = "budget.iteration.exceeded"
BUDGET_TOKEN_WARNING = "budget.token.warning"
BUDGET_TOKEN_EXCEEDED = "budget.token.exceeded"
BUDGET_TIMEOUT_WARNING = "budget.timeout.warning"
BUDGET_TIMEOUT_EXCEEDED = "budget.timeout.exceeded"
CONTEXT_APPROACHING_LIMIT = "context.approaching_limit"
CONTEXT_COMPRESSED = "context.compressed"
TOOL_CALL_PENDING = "tool.call.pending"
TOOL_CALL_SUCCESS = "tool.call.success"
TOOL_CALL_FAILURE = "tool.call.failure"
TOOL_CALL_TIMEOUT = "tool.call.timeout"
TOOL_CALL_HELD = "tool.call.held"
SUBAGENT_COMPLETE = "subagent.complete"
SUBAGENT_FAILED = "subagent.failed"
TASK_CHECKPOINT = "task.checkpoint"
SOURCE_STALE = "source.stale"
SELF_NOTIFY = "self.notify"

TREE_RELOADED = "tree.reload.done"
TREE_RELOAD_FAILED = "tree.reload.failed"
TREE_STUCK = "tree.stuck"
TREE_ESCALATED = "tree.stuck.escalated"
TREE_UNRESPONSIVE = "tree.unresponsive"
TREE_CONFLICT = "tree.conflict"

PLUGIN_PREFIX: Final = "plugin."  # of custom events; the name of the rule pack follows

# Ids are unique across processes, and ascending within one.
_PROCESS_PREFIX: Final = f"{int(time() * 1000):x}-{os.getpid():x}"
_event_numbers = count(1)


def _event_id() -> str:
    return f"{_PROCESS_PREFIX}-{next(_event_numbers):x}"


class Event(msgspec.Struct, frozen=True):
    """Something that happened.

    Events with the same `dedupe_key` are duplicates; if it is empty, the subscriber decides.
    `marks` are the untrusted sources that texts in the payload may come from.
    """

    type: str
    source: str
    severity: Severity = Severity.INFO
    payload: Mapping[str, Any] = {}
    timestamp: float = msgspec.field(default_factory=time)
    dedupe_key: str = ""
    id: str = msgspec.field(default_factory=_event_id)
    marks: Marks = NO_MARKS


Emit = Callable[[Event], None]


PATTERN_HINT: Final = "Write a type like tool.call.success, a prefix like tool.*, or *."

# `*` matches one name (`budget.*.warning`); at the end, everything below.
_PATTERN = re.compile(r"\*|[^.*\s]+(\.([^.*\s]+|\*(?=\.)))*(\.\*)?")


def is_pattern(text: str) -> bool:
    """Whether a text is a valid event pattern. A typo must not match nothing, or everything."""
    return _PATTERN.fullmatch(text) is not None


def matches(patterns: Iterable[str], type_: str) -> bool:
    """Whether any of the patterns matches an event type."""
    return any(_matches(pattern, type_) for pattern in patterns)


def _matches(pattern: str, type_: str) -> bool:
    if "*" not in pattern:
        return type_ == pattern
    if pattern == "*":
        return True
    parts, names = pattern.split("."), type_.split(".")
    if parts[-1] == "*":
        parts.pop()
        # Everything below a prefix, but not the prefix itself.
        if len(names) <= len(parts):
            return False
        names = names[: len(parts)]
    return len(parts) == len(names) and all(
        part in ("*", name) for part, name in zip(parts, names, strict=True)
    )
