"""Events that are told in one notice, and the notice that is made of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dodona.core.domain.notices import InjectionPoint, Notice
from dodona.core.errors import ConfigError
from dodona.core.events import Event, Severity
from dodona.notify import formats
from dodona.notify.subscriber import Subscriber, as_values
from dodona.templates import Template

LONGEST_TEXT: Final = 4_000  # characters: it is read again with every request of the run

# Whose it was the reader knows; what was said is in the text; a blackboard is not for readers.
_OWNERS: Final = frozenset({"user_id", "project_id", "run_id"})
_UNTOLD: Final = _OWNERS | {"message", "blackboard"}
_NOT_IN_ROWS: Final = _OWNERS | {"call", "blackboard"}

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Batch:
    """What one subscriber heard under one key. `since` is when it began, `count` is of all events.

    `by` is None when the subscriber is gone: then it is told in plain words.
    """

    by: Subscriber | None
    subscriber: str
    key: str
    since: float
    count: int = 0
    events: list[Event] = field(default_factory=list[Event])
    stored: list[int] = field(default_factory=list[int])

    @property
    def point(self) -> InjectionPoint:
        return self.by.point if self.by else InjectionPoint.IMMEDIATE

    @property
    def severity(self) -> Severity:
        return max((event.severity for event in self.events), key=lambda each: each.rank)

    @property
    def urgency(self) -> int:
        return max(self.by.urgency(event) for event in self.events) if self.by else 0

    @property
    def is_full(self) -> bool:
        return self.by is None or self.count >= self.by.batching.max_size

    def add(self, event: Event, stored: int | None) -> None:
        """Of events that say the same, the last is shown; all are counted."""
        if event.dedupe_key:
            self.events = [e for e in self.events if e.dedupe_key != event.dedupe_key]
        self.events.append(event)
        self.count += 1
        if stored is not None:
            self.stored.append(stored)

    def has_waited(self, now: float) -> bool:
        window = self.by.window if self.by else 0
        # A clock that was set back must not hold it for ever.
        return now - self.since >= window or now < self.since

    def notice(self) -> Notice | None:
        """What is told; None when its template has nothing to say of these."""
        text, shown = self._texts()
        if not text.strip() and not shown.strip():
            return None
        last = self.events[-1]
        metadata = {name: each for name, each in last.payload.items() if name not in _UNTOLD}
        if self.count > 1:
            metadata["count"] = self.count
        return Notice(
            subscriber=self.subscriber,
            event_type=last.type,
            severity=self.severity,
            point=self.point,
            text=_cut(text),
            user_text=_cut(shown),
            system_type=self.by.system_type if self.by else self.subscriber,
            metadata=metadata,
            is_kept=self.by.is_kept if self.by else True,
            events=tuple(event.id for event in self.events),
            stored=tuple(self.stored),
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "subscriber": self.subscriber,
            "key": self.key,
            "since": self.since,
            "count": self.count,
            "events": [event.as_json() for event in self.events],
            "stored": list(self.stored),
        }

    @classmethod
    def read(cls, kept: Mapping[str, Any], by: Subscriber | None) -> Batch:
        return cls(
            by,
            kept["subscriber"],
            kept["key"],
            kept["since"],
            kept["count"],
            [Event.read(event) for event in kept["events"]],
            list(kept["stored"]),
        )

    def _texts(self) -> tuple[str, str]:
        """For the model, and for people."""
        if self.by is None:
            return self._plain(), self._plain()
        events = [as_values(event) for event in self.events]
        values = {
            "events": events,
            "event": events[-1],
            "payload": events[-1]["payload"],
            "count": self.count,
        }
        text = self._rendered(self.by.template, values, formats.for_model)
        people = self.by.shown or self.by.template
        if people is self.by.template and not people.asks_for("rows"):
            return text, text
        return text, self._rendered(people, values, formats.for_people)

    def _rendered(
        self, template: Template, values: Mapping[str, Any], write: Callable[[Any], str]
    ) -> str:
        try:
            rows = {"rows": write(self._rows())} if template.asks_for("rows") else {}
            return template.render({**values, **rows}).strip()
        except ConfigError as error:
            _log.warning("subscriber %s: its template fails: %s", self.subscriber, error)
            return self._plain()

    def _rows(self) -> list[dict[str, Any]]:
        return [
            {name: value for name, value in event.payload.items() if name not in _NOT_IN_ROWS}
            for event in self.events
        ]

    def _plain(self) -> str:
        last = self.events[-1]
        said = last.payload.get("message")
        told = f"{last.type}: {said}" if isinstance(said, str) and said else last.type
        return f"{told} ({self.count} times)" if self.count > 1 else told


def _cut(text: str) -> str:
    text = text.strip()
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"
