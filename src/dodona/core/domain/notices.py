"""The port of notices: short texts about events for the model and the user, timed within a run.

Subscribers turn events into notices. Each run has an inbox: it receives the events of the run and
is drained at fixed points of a turn. Its state is JSON, so that a resumed run keeps the notices
that it has not delivered yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal, TypeAlias, TypedDict

import msgspec

from dodona.core.domain.trust import NO_MARKS, Marks
from dodona.core.events import Event, Severity
from dodona.core.extensions import Extension

EVENT_VARIABLES: Final = ("event", "payload")  # the variables of conditions about an event


class InjectionPoint(Enum):
    """Where in a turn a notice is added to the model's messages; IMMEDIATE is the next point."""

    IMMEDIATE = "immediate"
    TURN_START = "turn_start"
    AFTER_TOOL = "after_tool"
    TURN_END = "turn_end"


# Returns the text of a notice about events; None for no notice.
SubscriberFunction: TypeAlias = Callable[[Sequence[Event]], str | None]


class SubscriberOptions(TypedDict, total=False):
    """The options of a subscriber in Python; those in TOML are the same."""

    id: str  # default: the name of the function
    name: str
    description: str  # default: the docstring of the function
    enabled: bool
    severity: str
    filter: str
    window_ms: int
    max_size: int
    dedupe_key: str
    dedupe_window_ms: int
    priority: Literal["low", "normal", "high", "critical", "event"]
    inject_at: Literal["immediate", "turn_start", "after_tool", "turn_end"]
    system_type: str
    keep: bool


@dataclass(frozen=True, slots=True)
class SubscriberExtension(Extension):
    """A subscriber whose notices a function writes."""

    function: SubscriberFunction
    events: tuple[str, ...]
    options: SubscriberOptions

    @property
    def name(self) -> str:
        """Its id."""
        return self.options.get("id", getattr(self.function, "__name__", ""))


class DeferUntil(Enum):
    """The trigger of a deferred notice."""

    TIME = "time"  # `at`, in seconds since 1970
    TOOL = "tool"  # a call of the tool `tool`, in any run
    CONDITION = "condition"  # an event that satisfies the CEL expression `condition`
    SESSION = "session"  # the next run


class Deferral(msgspec.Struct, frozen=True):
    """When a notice is due. Only the field that `until` names is set."""

    until: DeferUntil = msgspec.field(name="moment")  # its name in HTTP bodies
    at: float | None = None
    tool: str = ""
    condition: str = ""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """A text that is delivered once: `text` to the model, `user_text` to people.

    `events` are the ids of the events that it reports. A persistent notice is stored with the
    exchange; notices about limits are not. `stored_ids` are the stored notices that it delivers.
    `marks` are those of its events.
    """

    subscriber: str
    event_type: str
    severity: Severity
    point: InjectionPoint
    text: str
    user_text: str
    system_type: str
    metadata: Mapping[str, Any] = {}
    is_persistent: bool = True
    events: tuple[str, ...] = ()
    stored_ids: tuple[int, ...] = ()
    marks: Marks = NO_MARKS


class NewNotice(msgspec.Struct, frozen=True, kw_only=True):
    """An event to deliver later, or in another session. The same `key` is stored once."""

    user_id: str
    project_id: str
    event: Event
    due: Deferral
    run_id: int | None = None  # the run that created it
    key: str | None = None


class StoredNotice(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    project_id: str
    event: Event
    due: Deferral
    run_id: int | None
    created_at: float
    delivered_at: float | None
