"""The port of notices: short texts about events for the model and the user, timed within a run.

Subscribers turn events into notices. Each run has an inbox: it receives the events of the run and
is drained at fixed points of a turn. Its state is JSON, so that a resumed run keeps the notices
that it has not delivered yet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, Protocol

from dodona.core.events import Event, Severity

EVENT_VARIABLES: Final = ("event", "payload")  # the variables of conditions about an event


class InjectionPoint(Enum):
    """Where in a turn a notice is added to the model's messages; IMMEDIATE is the next point."""

    IMMEDIATE = "immediate"
    TURN_START = "turn_start"
    AFTER_TOOL = "after_tool"
    TURN_END = "turn_end"


class DeferUntil(Enum):
    """The trigger of a deferred notice."""

    TIME = "time"  # `at`, in seconds since 1970
    TOOL = "tool"  # a call of the tool `tool`, in any run
    CONDITION = "condition"  # an event that satisfies the CEL expression `condition`
    SESSION = "session"  # the next run


@dataclass(frozen=True, slots=True)
class Deferral:
    """When a notice is due. Only the field that `until` names is set."""

    until: DeferUntil
    at: float | None = None
    tool: str = ""
    condition: str = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "moment": self.until.value,
            "at": self.at,
            "tool": self.tool,
            "condition": self.condition,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Deferral:
        return cls(DeferUntil(data["moment"]), data["at"], data["tool"], data["condition"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A text that is delivered once: `text` to the model, `user_text` to people.

    `events` are the ids of the events that it reports. A persistent notice is stored with the
    exchange; notices about limits are not. `stored_ids` are the stored notices that it delivers.
    """

    subscriber: str
    event_type: str
    severity: Severity
    point: InjectionPoint
    text: str
    user_text: str
    system_type: str
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    is_persistent: bool = True
    events: tuple[str, ...] = ()
    stored_ids: tuple[int, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "subscriber": self.subscriber,
            "event_type": self.event_type,
            "severity": self.severity.value,
            "point": self.point.value,
            "text": self.text,
            "shown": self.user_text,
            "system_type": self.system_type,
            "metadata": dict(self.metadata),
            "is_kept": self.is_persistent,
            "events": list(self.events),
            "stored": list(self.stored_ids),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Notice:
        return cls(
            subscriber=data["subscriber"],
            event_type=data["event_type"],
            severity=Severity(data["severity"]),
            point=InjectionPoint(data["point"]),
            text=data["text"],
            user_text=data["shown"],
            system_type=data["system_type"],
            metadata=data["metadata"],
            is_persistent=data["is_kept"],
            events=tuple(data["events"]),
            stored_ids=tuple(data["stored"]),
        )


class Inbox(Protocol):
    """The undelivered notices of one run. No method blocks or raises."""

    def receive(self, event: Event) -> None:
        """Pass an event to its subscribers, which create a notice or add to one."""
        ...

    def schedule(self, notices: Iterable[StoredNotice]) -> None:
        """Also deliver these notices, each when it is due, as if its event happened then."""
        ...

    def has_notices(self, *points: InjectionPoint) -> bool:
        """Whether a notice waits for one of these points. It may not be due yet."""
        ...

    def drain(self, *points: InjectionPoint, is_last: bool = False) -> list[Notice]:
        """Remove and return the notices that are due at these points, most urgent first.

        A batch is due when its window has passed or when it is full; with `is_last` always.
        """
        ...

    def as_json(self) -> Sequence[Any]:
        """Return all undelivered notices, in the format of `restore`."""
        ...

    def restore(self, state: Sequence[Any]) -> None:
        """Replace the content of the inbox."""
        ...


class Subscribers(Protocol):
    """The currently loaded subscribers."""

    def create_inbox(self, disabled: Collection[str] = (), enabled: Collection[str] = ()) -> Inbox:
        """Create an inbox for a user's overrides; core subscribers cannot be disabled.

        Later changes to the two collections take effect in the inbox.
        """
        ...

    def list(self) -> Sequence[Mapping[str, Any]]:
        """List them, each with id, name, description, events, core, enabled (by default), file."""
        ...

    def problems(self) -> Sequence[str]:
        """Return the problems of files that could not be loaded."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NewNotice:
    """An event to deliver later, or in another session. The same `key` is stored once."""

    user_id: str
    project_id: str
    event: Event
    due: Deferral
    run_id: int | None = None  # the run that created it
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredNotice:
    id: int
    project_id: str
    event: Event
    due: Deferral
    run_id: int | None
    created_at: float
    delivered_at: float | None


def to_deferred_event(stored: StoredNotice) -> Event:
    """Return the event of a stored notice, marked as deferred, as a run receives it."""
    due = {"id": stored.id, "due": stored.due.as_json(), "created_at": stored.created_at}
    return replace(stored.event, payload={**stored.event.payload, "deferred": due})


def to_stored_notice(event: Event, due: Mapping[str, Any], project_id: str) -> StoredNotice:
    """Return the stored notice of an event that `to_deferred_event` built."""
    payload = {name: value for name, value in event.payload.items() if name != "deferred"}
    return StoredNotice(
        id=due["id"],
        project_id=project_id,
        event=replace(event, payload=payload),
        due=Deferral.from_json(due["due"]),
        run_id=payload.get("run_id"),
        created_at=due["created_at"],
        delivered_at=None,
    )


class NoticeLog(Protocol):
    """Notices that outlive runs, as tools see them."""

    async def put(self, notice: NewNotice) -> StoredNotice: ...
