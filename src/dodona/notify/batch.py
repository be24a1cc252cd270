"""Batches of events, and the notice rendered from a batch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from dodona.core.domain.notices import InjectionPoint, Notice, SubscriberFunction
from dodona.core.domain.trust import NO_MARKS, Marks, merge_marks
from dodona.core.errors import ConfigError
from dodona.core.events import Event, Severity
from dodona.notify import formats
from dodona.notify.subscriber import Subscriber, event_values
from dodona.templates import Template

MAX_TEXT_CHARS: Final = 4_000  # the notice is sent again with every request of the run

# Fields left out of notices: the owner is known to the reader, the message is in the text, and a
# blackboard is not meant for readers.
_OWNER_FIELDS: Final = frozenset({"user_id", "project_id", "run_id"})
_EXCLUDED_METADATA: Final = _OWNER_FIELDS | {"message", "blackboard"}
_EXCLUDED_ROW_FIELDS: Final = _OWNER_FIELDS | {"call", "blackboard"}

_log = logging.getLogger(__name__)


class BatchState(msgspec.Struct):
    """The events of one subscriber under one key; `count` includes deduplicated events."""

    subscriber_id: str
    key: str
    started_at: float
    count: int = 0
    events: list[Event] = []
    stored_ids: list[int] = []
    marks: Marks = NO_MARKS


@dataclass(slots=True)
class Batch:
    """A batch and its subscriber; None if it was removed: the notice then has a plain text."""

    subscriber: Subscriber | None
    state: BatchState

    @property
    def point(self) -> InjectionPoint:
        return self.subscriber.point if self.subscriber else InjectionPoint.IMMEDIATE

    @property
    def severity(self) -> Severity:
        return max((event.severity for event in self.state.events), key=lambda each: each.rank)

    @property
    def urgency(self) -> int:
        if self.subscriber is None:
            return 0
        return max(self.subscriber.urgency(event) for event in self.state.events)

    @property
    def is_full(self) -> bool:
        return self.subscriber is None or self.state.count >= self.subscriber.batching.max_size

    def add(self, event: Event, stored_id: int | None) -> None:
        """Add an event. Of events with the same dedupe key only the last is kept; all count."""
        if event.dedupe_key:
            self.state.events = [e for e in self.state.events if e.dedupe_key != event.dedupe_key]
        self.state.events.append(event)
        self.state.count += 1
        if event.marks:
            self.state.marks = merge_marks(self.state.marks, event.marks)
        if stored_id is not None:
            self.state.stored_ids.append(stored_id)

    def is_window_over(self, now: float) -> bool:
        window = self.subscriber.window_seconds if self.subscriber else 0
        # A clock that was set back must not hold the batch forever.
        return now - self.state.started_at >= window or now < self.state.started_at

    def build_notice(self) -> Notice | None:
        """Render the notice; None if the template renders to nothing."""
        text, user_text = self._render_texts()
        if not text.strip() and not user_text.strip():
            return None
        last = self.state.events[-1]
        metadata = {
            name: each for name, each in last.payload.items() if name not in _EXCLUDED_METADATA
        }
        if self.state.count > 1:
            metadata["count"] = self.state.count
        name, subscriber = self.state.subscriber_id, self.subscriber
        return Notice(
            subscriber=name,
            event_type=last.type,
            severity=self.severity,
            point=self.point,
            text=_truncate(text),
            user_text=_truncate(user_text),
            system_type=subscriber.system_type if subscriber else name,
            metadata=metadata,
            is_persistent=subscriber.is_persistent if subscriber else True,
            events=tuple(event.id for event in self.state.events),
            stored_ids=tuple(self.state.stored_ids),
            marks=self.state.marks,
        )

    def _render_texts(self) -> tuple[str, str]:
        """Render the text for the model and the text for users."""
        if self.subscriber is None:
            return self._plain_text(), self._plain_text()
        if self.subscriber.function is not None:
            text = self._call_function(self.subscriber.function)
            return text, text
        events = [event_values(event) for event in self.state.events]
        values = {
            "events": events,
            "event": events[-1],
            "payload": events[-1]["payload"],
            "count": self.state.count,
        }
        text = self._render(self.subscriber.template, values, formats.format_for_model)
        user_template = self.subscriber.user_template or self.subscriber.template
        if user_template is self.subscriber.template and not user_template.uses_variable("rows"):
            return text, text
        return text, self._render(user_template, values, formats.format_for_people)

    def _call_function(self, function: SubscriberFunction) -> str:
        try:
            text = function(tuple(self.state.events))
        except Exception:  # noqa: BLE001 - code of an extension may raise anything
            _log.exception("subscriber %s failed", self.state.subscriber_id)
            return self._plain_text()
        return text if isinstance(text, str) else ""

    def _render(
        self, template: Template, values: Mapping[str, Any], format_rows: Callable[[Any], str]
    ) -> str:
        try:
            rows = {"rows": format_rows(self._rows())} if template.uses_variable("rows") else {}
            return template.render({**values, **rows}).strip()
        except ConfigError as error:
            _log.warning("subscriber %s: the template failed: %s", self.state.subscriber_id, error)
            return self._plain_text()

    def _rows(self) -> list[dict[str, Any]]:
        return [
            {
                name: value
                for name, value in event.payload.items()
                if name not in _EXCLUDED_ROW_FIELDS
            }
            for event in self.state.events
        ]

    def _plain_text(self) -> str:
        last = self.state.events[-1]
        message = last.payload.get("message")
        text = f"{last.type}: {message}" if isinstance(message, str) and message else last.type
        return f"{text} ({self.state.count} times)" if self.state.count > 1 else text


def _truncate(text: str) -> str:
    text = text.strip()
    return text if len(text) <= MAX_TEXT_CHARS else f"{text[: MAX_TEXT_CHARS - 1]}…"
