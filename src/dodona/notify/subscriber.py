"""Subscribers: which events they match, how events are batched, and the notice they produce.

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

import inspect
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, ValidationError

from dodona.conditions import Condition, ConditionFailed, compile_condition
from dodona.core.domain.notices import (
    EVENT_VARIABLES,
    InjectionPoint,
    SubscriberExtension,
    SubscriberFunction,
)
from dodona.core.errors import ConfigError, ExtensionError, did_you_mean
from dodona.core.events import PATTERN_HINT, Event, Severity, is_pattern, matches
from dodona.core.extensions import location_of
from dodona.documents import (
    ConfigErrorBuilder,
    ModelShape,
    NonEmptyStrings,
    Section,
    field_error,
    read_document,
)
from dodona.templates import Template

# The variables of text templates; conditions and dedupe keys only have EVENT_VARIABLES.
BATCH_VARIABLES: Final = ("events", "event", "count", "payload", "rows")

PRIORITIES: Final = ("low", "normal", "high", "critical")

_ID_HINT: Final = "A lowercase letter, then at most 63 lowercase letters, digits, _ or -."

_log = logging.getLogger(__name__)


def _check_id(text: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_-]{0,63}", text):
        raise field_error("is not a valid id", _ID_HINT)
    return text


def _check_patterns(texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts or ("",):
        if not is_pattern(text):
            raise field_error(f"contains an invalid event pattern: '{text:.80}'", PATTERN_HINT)
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
    return field_error(f"is invalid: {error.message.rstrip('.')}", error.hint, line=line)


class SubscriberSection(Section):
    """The identity of the subscriber."""

    id: Annotated[str, AfterValidator(_check_id)] = Field(description=_ID_HINT)
    name: str = Field(default="", description="The display name. Default: the id.")
    description: str = Field(default="", description="The content of its notices.")
    version: str = Field(default="1", description="The version of this file.")
    enabled: bool = Field(default=True, description="Whether it is on by default.")
    core: bool = Field(default=False, description="Users cannot turn it off.")


class EventsSection(Section):
    """The events that it matches."""

    types: Annotated[NonEmptyStrings, AfterValidator(_check_patterns)] = Field(
        description="Patterns: `tool.call.failure`, `tool.*`, `budget.*.warning`, `*`."
    )
    severity: Literal["debug", "info", "warning", "error", "critical"] = Field(
        default="debug", description="The minimum severity."
    )
    filter: Annotated[str, AfterValidator(_check_condition)] | None = Field(
        default=None, description="A CEL condition over `event` and `payload`."
    )


class BatchingSection(Section):
    """How events are combined into one notice."""

    window_ms: int = Field(
        default=0, ge=0, le=3_600_000, description="How long a batch waits for more events."
    )
    max_size: int = Field(
        default=50, ge=1, le=200, description="A batch with this many events waits no longer."
    )
    dedupe_key: Annotated[str, AfterValidator(_check_event_template)] = Field(
        default="",
        description="A template over `event` and `payload`. Events with the same key share a "
        "batch.",
    )
    dedupe_window_ms: int = Field(
        default=0,
        ge=0,
        le=86_400_000,
        description="How long after a notice the next one with the same key is held back.",
    )


class OutputSection(Section):
    """The notice, and when it is delivered."""

    template: Annotated[str, AfterValidator(_check_batch_template)] = Field(
        description="The text for the model, a Jinja2 template over `events`, `event` (the last), "
        "`count`, `payload` (of the last) and `rows` (all payloads, in compact form)."
    )
    shown: Annotated[str, AfterValidator(_check_batch_template)] | None = Field(
        default=None, description="The text for users. Default: the text for the model."
    )
    priority: Literal["low", "normal", "high", "critical", "event"] = Field(
        default="normal",
        description="The order of delivery; `event` uses the `priority` of the payload.",
    )
    inject_at: Literal["immediate", "turn_start", "after_tool", "turn_end"] = Field(
        default="turn_start", description="When in a turn it is delivered."
    )
    system_type: str = Field(
        default="", description="The kind of the `system` chunk. Default: the id."
    )
    keep: bool = Field(default=True, description="Whether it is stored with the exchange.")


class SubscriberFile(Section):
    """A subscriber file."""

    subscriber: SubscriberSection = Field(description="The identity of the subscriber.")
    events: EventsSection = Field(description="The events that it matches.")
    batching: BatchingSection = Field(
        default=BatchingSection(), description="How events are combined into one notice."
    )
    output: OutputSection = Field(description="The notice, and when it is delivered.")


class Subscriber:
    """A subscriber that was loaded from a file, ready for use."""

    def __init__(
        self, config: SubscriberFile, file: str, function: SubscriberFunction | None = None
    ) -> None:
        section, output = config.subscriber, config.output
        self.id, self.file = section.id, file
        self.function = function  # writes the notices instead of the templates
        self.section, self.batching = section, config.batching
        self.types = config.events.types
        self.point = InjectionPoint(output.inject_at)
        self.system_type = output.system_type or section.id
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
        """Return whether the event passes severity and filter. A filter that fails is false."""
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
        """Return the dedupe key; events with the same key share a batch."""
        if self._key_template is None:
            return ""
        try:
            return self._key_template.render(values)
        except ConfigError as error:
            self._warn_once("the dedupe key", error)
            return ""

    def urgency(self, event: Event) -> int:
        """Return the urgency of an event; higher values are delivered first."""
        priority = event.payload.get("priority") if self._priority == "event" else self._priority
        return PRIORITIES.index(priority if priority in PRIORITIES else "normal")

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

    def _warn_once(self, part: str, error: Exception) -> None:
        # Once, because the same warning would repeat for thousands of events.
        if not self._has_warned:
            _log.warning("subscriber %s: %s failed: %s", self.id, part, error)
        self._has_warned = True


def read_subscriber(file: Path) -> Subscriber:
    """Read a subscriber file (blocking). Raise ConfigError with all problems."""
    document = read_document(file, label="the subscriber")
    return Subscriber(document.validate(SubscriberFile), str(file))


def build_subscriber(extension: SubscriberExtension) -> Subscriber:
    """Build the subscriber that an extension declares. Raise ExtensionError with its location."""
    where = location_of(extension.function)
    options: dict[str, Any] = {**extension.options, "id": extension.name}
    options.setdefault("description", inspect.getdoc(extension.function) or "")
    sections: dict[str, dict[str, Any]] = {
        "subscriber": {},
        "events": {"types": list(extension.events)},
        "batching": {},
        "output": {"template": extension.name},
    }
    for name, value in options.items():
        section = next((key for key, model in _SECTIONS.items() if name in model.model_fields), "")
        if not section:
            names = [field for model in _SECTIONS.values() for field in model.model_fields]
            raise ExtensionError(
                f"subscriber '{extension.name}' has no option '{name}'.",
                where=where,
                hint=did_you_mean(name, names),
            )
        sections[section][name] = value
    try:
        config = SubscriberFile.model_validate(sections)
    except ValidationError as error:
        builder = ConfigErrorBuilder(ModelShape(SubscriberFile), lambda _: where)
        first = next(builder.from_validation_error(error))
        problem = first.message.partition(".")[2]  # without the section of a file
        raise ExtensionError(
            f"subscriber '{extension.name}': {problem}", where=where, hint=first.hint
        ) from error
    return Subscriber(config, str(where or ""), extension.function)


_SECTIONS: Final[Mapping[str, type[Section]]] = {
    "subscriber": SubscriberSection,
    "events": EventsSection,
    "batching": BatchingSection,
    "output": OutputSection,
}


def event_values(event: Event) -> dict[str, Any]:
    """Return an event as the variables of templates and conditions."""
    return {
        "type": event.type,
        "source": event.source,
        "severity": event.severity.value,
        "payload": dict(event.payload),
        "timestamp": event.timestamp,
    }


def _compile_filter(text: str | None) -> Condition | None:
    return None if text is None else compile_condition(text, names=EVENT_VARIABLES)
