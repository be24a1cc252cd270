"""A subscriber: which events it wants, how they are gathered, and what is told of them when.

[subscriber]
id = "tool_failure"

[events]
types = ["tool.call.failure", "tool.call.timeout"]

[batching]
dedupe_key = "{{ payload.tool }}"

[output]
inject_at = "after_tool"
template = "{{ payload.tool }} failed {{ count }} times: {{ payload.error }}"
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from dodona.conditions import Condition, ConditionFailed, compile_condition
from dodona.core.domain.notices import EVENT_VARIABLES, InjectionPoint
from dodona.core.errors import ConfigError
from dodona.core.events import PATTERN_HINT, Event, Severity, is_pattern, matches
from dodona.documents import NonEmptyStrings, Section, field_error, read_document
from dodona.templates import Template

# What conditions and dedupe keys know; templates of texts know the whole batch.
BATCH_VARIABLES: Final = ("events", "event", "count", "payload", "rows")

PRIORITIES: Final = ("low", "normal", "high", "critical")

_ID_HINT: Final = "A small letter, then at most 63 of small letters, digits, _ and -."

_log = logging.getLogger(__name__)


def _check_id(text: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_-]{0,63}", text):
        raise field_error("is no id", _ID_HINT)
    return text


def _check_patterns(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts or ("",):
        if not is_pattern(text):
            raise field_error(f"has what is no pattern of events: '{text:.80}'", PATTERN_HINT)
    return texts


def _check_condition(text: str) -> str:
    try:
        compile_condition(text, names=EVENT_VARIABLES)
    except ConfigError as error:
        raise _as_field_error(error) from None
    return text


def _check_event_template(text: str) -> str:
    return _check_template(text, EVENT_VARIABLES)


def _check_batch_template(text: str) -> str:
    return _check_template(text, BATCH_VARIABLES)


def _check_template(text: str, names: tuple[str, ...]) -> str:
    try:
        Template(text, names=names)
    except ConfigError as error:
        raise _as_field_error(error) from None
    return text


def _as_field_error(error: ConfigError) -> Exception:
    line = error.where.line if error.where else 0
    return field_error(f"is wrong: {error.message.rstrip('.')}", error.hint, line=line)


class SubscriberSection(Section):
    """Which subscriber this is."""

    id: Annotated[str, AfterValidator(_check_id)] = Field(description=_ID_HINT)
    name: str = Field(default="", description="What people call it; its default is the id.")
    description: str = Field(default="", description="What it tells.")
    version: str = Field(default="1", description="Of this file.")
    enabled: bool = Field(default=True, description="Is it on for those who say nothing?")
    core: bool = Field(default=False, description="A user cannot turn it off.")


class EventsSection(Section):
    """What it wants to hear."""

    types: Annotated[NonEmptyStrings, AfterValidator(_check_patterns)] = Field(
        description="Patterns: `tool.call.failure`, `tool.*`, `budget.*.warning`, `*`."
    )
    severity: Literal["debug", "info", "warning", "error", "critical"] = Field(
        default="debug", description="The least."
    )
    filter: Annotated[str, AfterValidator(_check_condition)] | None = Field(
        default=None, description="A condition in CEL over `event` and `payload`."
    )


class BatchingSection(Section):
    """How events become one notice."""

    window_ms: int = Field(
        default=0, ge=0, le=3_600_000, description="How long a batch waits for more."
    )
    max_size: int = Field(default=50, ge=1, le=200, description="With so many it waits no longer.")
    dedupe_key: Annotated[str, AfterValidator(_check_event_template)] = Field(
        default="",
        description="A template over `event` and `payload`: events with the same text make one "
        "batch.",
    )
    dedupe_window_ms: int = Field(
        default=0,
        ge=0,
        le=86_400_000,
        description="How long after a notice the next with the same key is held back.",
    )


class OutputSection(Section):
    """What is told, and when."""

    template: Annotated[str, AfterValidator(_check_batch_template)] = Field(
        description="For the model, in Jinja2: `events`, `event` (the last), `count`, `payload` "
        "(of the last) and `rows` (all payloads, written short)."
    )
    shown: Annotated[str, AfterValidator(_check_batch_template)] | None = Field(
        default=None, description="The same for people; its default is what the model reads."
    )
    priority: Literal["low", "normal", "high", "critical", "event"] = Field(
        default="normal",
        description="What is told first; `event` is what the payload's `priority` says.",
    )
    inject_at: Literal["immediate", "turn_start", "after_tool", "turn_end"] = Field(
        default="turn_start", description="Where in a turn."
    )
    system_type: str = Field(
        default="", description="The kind of the `system` chunk; its default is the id."
    )
    keep: bool = Field(default=True, description="Does it stay with the exchange?")


class SubscriberFile(Section):
    """The whole file."""

    subscriber: SubscriberSection = Field(description="Which subscriber this is.")
    events: EventsSection = Field(description="What it wants to hear.")
    batching: BatchingSection = Field(
        default=BatchingSection(), description="How events become one notice."
    )
    output: OutputSection = Field(description="What is told, and when.")


class Subscriber:
    """One file's, ready for use."""

    def __init__(self, config: SubscriberFile, file: str) -> None:
        about, output = config.subscriber, config.output
        self.id, self.file = about.id, file
        self.section, self.batching = about, config.batching
        self.types = config.events.types
        self.point = InjectionPoint(output.inject_at)
        self.system_type = output.system_type or about.id
        self.is_persistent = output.keep
        self.window_seconds = config.batching.window_ms / 1000
        self.dedupe_seconds = config.batching.dedupe_window_ms / 1000
        self.template = Template(output.template, names=BATCH_VARIABLES)
        self.user_template = (
            None if output.shown is None else Template(output.shown, names=BATCH_VARIABLES)
        )
        self._priority = output.priority
        self._min_severity_rank = Severity(config.events.severity).rank
        self._filter = _compile_filter(config.events.filter)
        key = config.batching.dedupe_key
        self._key_template = Template(key, names=EVENT_VARIABLES) if key else None
        self._has_warned = False

    def matches_type(self, type_: str) -> bool:
        return matches(self.types, type_)

    def matches_event(self, event: Event, values: Mapping[str, Any]) -> bool:
        """Does it pass the severity and the filter? One that cannot be evaluated does not hold."""
        if event.severity.rank < self._min_severity_rank:
            return False
        if self._filter is None:
            return True
        try:
            return self._filter.holds(values)
        except ConditionFailed as error:
            self._warn_once("the filter", error)
            return False

    def dedupe_key(self, values: Mapping[str, Any]) -> str:
        """The same for events that make one batch."""
        if self._key_template is None:
            return ""
        try:
            return self._key_template.render(values)
        except ConfigError as error:
            self._warn_once("the dedupe key", error)
            return ""

    def urgency(self, event: Event) -> int:
        """The higher the sooner."""
        said = event.payload.get("priority") if self._priority == "event" else self._priority
        return PRIORITIES.index(said) if said in PRIORITIES else PRIORITIES.index("normal")

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.section.name or self.id,
            "description": self.section.description,
            "version": self.section.version,
            "events": list(self.types),
            "core": self.section.core,
            "enabled": self.section.enabled,
            "inject_at": self.point.value,
            "file": self.file,
        }

    def _warn_once(self, what: str, error: Exception) -> None:
        # Once: it would be said with every event, of which there may be thousands.
        if not self._has_warned:
            _log.warning("subscriber %s: %s fails: %s", self.id, what, error)
        self._has_warned = True


def read_subscriber(file: Path) -> Subscriber:
    """What a file says; raises every mistake in it. It blocks."""
    document = read_document(file, label="the subscriber")
    return Subscriber(document.validate(SubscriberFile), str(file))


def event_values(event: Event) -> dict[str, Any]:
    """An event as templates and conditions know it."""
    return {
        "type": event.type,
        "source": event.source,
        "severity": event.severity.value,
        "payload": dict(event.payload),
        "timestamp": event.timestamp,
    }


def _compile_filter(text: str | None) -> Condition | None:
    return None if text is None else compile_condition(text, names=EVENT_VARIABLES)
