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
from dodona.core.domain.notices import OF_AN_EVENT, InjectionPoint
from dodona.core.errors import ConfigError
from dodona.core.events import HINT, Event, Severity, is_pattern, matches
from dodona.documents import Section, Texts, read, wrong
from dodona.templates import Template

# What conditions and dedupe keys know; templates of texts know the whole batch.
OF_A_BATCH: Final = ("events", "event", "count", "payload", "rows")

PRIORITIES: Final = ("low", "normal", "high", "critical")

_ID_HINT: Final = "A small letter, then at most 63 of small letters, digits, _ and -."

_log = logging.getLogger(__name__)


def _id(text: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_-]{0,63}", text):
        raise wrong("is no id", _ID_HINT)
    return text


def _patterns(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts or ("",):
        if not is_pattern(text):
            raise wrong(f"has what is no pattern of events: '{text:.80}'", HINT)
    return texts


def _condition(text: str) -> str:
    try:
        compile_condition(text, names=OF_AN_EVENT)
    except ConfigError as error:
        raise _passed_on(error) from None
    return text


def _event_template(text: str) -> str:
    return _template(text, OF_AN_EVENT)


def _batch_template(text: str) -> str:
    return _template(text, OF_A_BATCH)


def _template(text: str, names: tuple[str, ...]) -> str:
    try:
        Template(text, names=names)
    except ConfigError as error:
        raise _passed_on(error) from None
    return text


def _passed_on(error: ConfigError) -> Exception:
    line = error.where.line if error.where else 0
    return wrong(f"is wrong: {error.message.rstrip('.')}", error.hint, line=line)


class SubscriberSection(Section):
    """Which subscriber this is."""

    id: Annotated[str, AfterValidator(_id)] = Field(description=_ID_HINT)
    name: str = Field(default="", description="What people call it; its default is the id.")
    description: str = Field(default="", description="What it tells.")
    version: str = Field(default="1", description="Of this file.")
    enabled: bool = Field(default=True, description="Is it on for those who say nothing?")
    core: bool = Field(default=False, description="A user cannot turn it off.")


class EventsSection(Section):
    """What it wants to hear."""

    types: Annotated[Texts, AfterValidator(_patterns)] = Field(
        description="Patterns: `tool.call.failure`, `tool.*`, `budget.*.warning`, `*`."
    )
    severity: Literal["debug", "info", "warning", "error", "critical"] = Field(
        default="debug", description="The least."
    )
    filter: Annotated[str, AfterValidator(_condition)] | None = Field(
        default=None, description="A condition in CEL over `event` and `payload`."
    )


class BatchingSection(Section):
    """How events become one notice."""

    window_ms: int = Field(
        default=0, ge=0, le=3_600_000, description="How long a batch waits for more."
    )
    max_size: int = Field(default=50, ge=1, le=200, description="With so many it waits no longer.")
    dedupe_key: Annotated[str, AfterValidator(_event_template)] = Field(
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

    template: Annotated[str, AfterValidator(_batch_template)] = Field(
        description="For the model, in Jinja2: `events`, `event` (the last), `count`, `payload` "
        "(of the last) and `rows` (all payloads, written short)."
    )
    shown: Annotated[str, AfterValidator(_batch_template)] | None = Field(
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

    def __init__(self, written: SubscriberFile, file: str) -> None:
        about, output = written.subscriber, written.output
        self.id, self.file = about.id, file
        self.about, self.batching = about, written.batching
        self.types = written.events.types
        self.point = InjectionPoint(output.inject_at)
        self.system_type = output.system_type or about.id
        self.is_kept = output.keep
        self.window = written.batching.window_ms / 1000
        self.quiet = written.batching.dedupe_window_ms / 1000
        self.template = Template(output.template, names=OF_A_BATCH)
        self.shown = None if output.shown is None else Template(output.shown, names=OF_A_BATCH)
        self._priority = output.priority
        self._least = Severity(written.events.severity).rank
        self._filter = _compiled(written.events.filter)
        key = written.batching.dedupe_key
        self._key = Template(key, names=OF_AN_EVENT) if key else None
        self._is_warned = False

    def wants_type(self, type_: str) -> bool:
        return matches(self.types, type_)

    def wants(self, event: Event, values: Mapping[str, Any]) -> bool:
        """Does it pass the severity and the filter? One that cannot be evaluated does not hold."""
        if event.severity.rank < self._least:
            return False
        if self._filter is None:
            return True
        try:
            return self._filter.holds(values)
        except ConditionFailed as error:
            self._warn("the filter", error)
            return False

    def key(self, values: Mapping[str, Any]) -> str:
        """The same for events that make one batch."""
        if self._key is None:
            return ""
        try:
            return self._key.render(values)
        except ConfigError as error:
            self._warn("the dedupe key", error)
            return ""

    def urgency(self, event: Event) -> int:
        """The higher the sooner."""
        said = event.payload.get("priority") if self._priority == "event" else self._priority
        return PRIORITIES.index(said) if said in PRIORITIES else PRIORITIES.index("normal")

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.about.name or self.id,
            "description": self.about.description,
            "version": self.about.version,
            "events": list(self.types),
            "core": self.about.core,
            "enabled": self.about.enabled,
            "inject_at": self.point.value,
            "file": self.file,
        }

    def _warn(self, what: str, error: Exception) -> None:
        # Once: it would be said with every event, of which there may be thousands.
        if not self._is_warned:
            _log.warning("subscriber %s: %s fails: %s", self.id, what, error)
        self._is_warned = True


def read_subscriber(file: Path) -> Subscriber:
    """What a file says; raises every mistake in it. It blocks."""
    document = read(file, what="the subscriber")
    return Subscriber(document.checked(SubscriberFile), str(file))


def as_values(event: Event) -> dict[str, Any]:
    """An event as templates and conditions know it."""
    return {
        "type": event.type,
        "source": event.source,
        "severity": event.severity.value,
        "payload": dict(event.payload),
        "timestamp": event.timestamp,
    }


def _compiled(text: str | None) -> Condition | None:
    return None if text is None else compile_condition(text, names=OF_AN_EVENT)
