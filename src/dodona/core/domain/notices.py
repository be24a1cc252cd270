"""The port of notices: what an agent and its user are told of events, at which point of a run.

Subscribers make notices of events. A run has an inbox: it hears the events of the run, and is
drained at the points of a turn. What it holds is JSON, so that a run that is resumed goes on with
what it had not told yet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, Protocol

from dodona.core.domain.budgets import Operation
from dodona.core.events import Event, Severity

EVENT_VARIABLES: Final = ("event", "payload")  # what conditions about an event may name


class InjectionPoint(Enum):
    """Where in a turn a notice is put into the model's messages; IMMEDIATE is the next of them."""

    IMMEDIATE = "immediate"
    TURN_START = "turn_start"
    AFTER_TOOL = "after_tool"
    TURN_END = "turn_end"


class DeferUntil(Enum):
    """What a deferred notice waits for."""

    TIME = "time"  # `at`, in seconds since 1970
    TOOL = "tool"  # a call of the tool `tool`, in any run
    CONDITION = "condition"  # an event for which the CEL expression `condition` holds
    SESSION = "session"  # the next run


@dataclass(frozen=True, slots=True)
class Deferral:
    """When a notice is due. Nothing else of it is set than what its moment names."""

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
    """What is told, once. `text` is for the model, `shown` for people.

    `events` are the ids of what it tells of. A notice that `is_kept` stays with the exchange; of
    limits nothing is kept. `stored` are the numbers of the kept notices that it delivers.
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
    """What one run has heard and not told yet. Nothing here blocks, and nothing raises."""

    def receive(self, event: Event) -> None:
        """Let the subscribers that want it make a notice of an event, or add it to one."""
        ...

    def schedule(self, notices: Iterable[StoredNotice]) -> None:
        """Tell these too, each when it is due, as if its event happened then."""
        ...

    def has_notices(self, *points: InjectionPoint) -> bool:
        """Does anything wait for one of these points? Its time may not have come."""
        ...

    def drain(self, *points: InjectionPoint, is_last: bool = False) -> list[Notice]:
        """Take what is due at these points, the most urgent first.

        A batch is due when its window has passed or when it is full; with `is_last` always.
        """
        ...

    def as_json(self) -> Sequence[Any]:
        """All that waits; what `restore` takes."""
        ...

    def restore(self, state: Sequence[Any]) -> None:
        """Hold just this."""
        ...


class Subscribers(Protocol):
    """The subscribers there are now."""

    def create_inbox(self, disabled: Collection[str] = (), enabled: Collection[str] = ()) -> Inbox:
        """An inbox of a user who has turned these off or on; core ones stay on.

        Whoever changes these collections changes what the inbox does.
        """
        ...

    def list(self) -> Sequence[Mapping[str, Any]]:
        """Each with id, name, description, events, core, enabled (by default) and file."""
        ...

    def problems(self) -> Sequence[str]:
        """What is wrong with files that were not taken."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NewNotice:
    """An event to be told later, or in another session. The same `key` is kept once."""

    user_id: str
    project_id: str
    event: Event
    due: Deferral
    run_id: int | None = None  # that it came from
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
    """The event of a notice that is to be told later, as a run hears of it."""
    due = {"id": stored.id, "due": stored.due.as_json(), "created_at": stored.created_at}
    return replace(stored.event, payload={**stored.event.payload, "deferred": due})


def to_stored_notice(event: Event, due: Mapping[str, Any], project_id: str) -> StoredNotice:
    """What `deferred` made an event of."""
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
    """Notices that outlive runs; another user's are not found."""

    async def put(self, notice: NewNotice) -> StoredNotice: ...

    async def pending(self, user_id: str, project_id: str) -> list[StoredNotice]:
        """What was not delivered yet, the oldest first."""
        ...

    async def list(
        self, user_id: str, *, project_id: str | None = None, before: int | None = None, limit: int
    ) -> list[StoredNotice]:
        """Delivered or not, the newest first."""
        ...

    async def dismiss(self, user_id: str, notice_id: int) -> StoredNotice:
        """It need not be delivered any more."""
        ...

    def mark_delivered(self, user_id: str, ids: Sequence[int]) -> Operation[None]:
        """Marks them as delivered, in whatever transaction it is done."""
        ...
