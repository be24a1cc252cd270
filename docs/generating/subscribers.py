"""Generates subscribers.md from the built-in subscribers and the model of their files."""

from __future__ import annotations

from collections.abc import Iterator

from dodona.core.domain.notices import InjectionPoint
from dodona.notify import BUILTIN_SUBSCRIBERS
from dodona.notify.inbox import MAX_BATCHES
from dodona.notify.subscriber import Subscriber, SubscriberFile, read_subscriber
from generating.sections import keys
from generating.writing import page, prose, table

POINTS = {
    InjectionPoint.IMMEDIATE: "at the next of the points below",
    InjectionPoint.TURN_START: "before a model call",
    InjectionPoint.AFTER_TOOL: "after the tool calls of a turn",
    InjectionPoint.TURN_END: "at the end of a turn",
}


def subscribers_page() -> str:
    """Return the text of subscribers.md."""
    return page(
        "# Subscribers",
        prose("""A subscriber turns [events](events.md) into notices: text for the model, and a
            [`system` chunk](chunks.md#system) for the user. Each subscriber is a TOML file. Your
            subscribers are in the folder [`subscribers.folder`](config.md#subscribers), or in the
            folder `subscribers` of a pack; changes apply within a second. [How to subscribe to
            events](../how-to/subscribe-to-events.md) has examples, and
            [notices](../explanation/notices.md) explains how they reach the model."""),
        "## Built-in",
        prose("""A core subscriber cannot be disabled. A notice that is not stored is delivered once
            and is not part of the conversation history."""),
        table(
            ("subscriber", "description", "events", "when", "stored", ""),
            [_row(each) for each in builtin()],
        ),
        "## File",
        *_sections(),
        "## Injection points",
        table(
            ("inject_at", "when"), [(f"`{point.value}`", text) for point, text in POINTS.items()]
        ),
        prose(f"""A notice that becomes due while the model writes is part of the next request.
            Notices still pending at the end of a run are shown to the user. An inbox holds
            {MAX_BATCHES} batches. If it is full, the batches with the lowest priority are dropped,
            and a notice says how many."""),
        "## Templates",
        prose("""Templates are sandboxed Jinja2. Variables: `events` (all events of the batch),
            `event` (the last event), `payload` (its payload), `count` (the number of events) and
            `rows` (all payloads as a TOON table, or as JSON if that is shorter). An empty result
            produces no notice for that audience."""),
    )


def builtin() -> Iterator[Subscriber]:
    """Yield the built-in subscribers."""
    for file in sorted(BUILTIN_SUBSCRIBERS.glob("*.toml")):
        yield read_subscriber(file)


def _row(each: Subscriber) -> tuple[str, ...]:
    return (
        f"`{each.id}`",
        each.section.description,
        ", ".join(f"`{pattern}`" for pattern in each.types),
        f"`{each.point.value}`",
        "yes" if each.is_persistent else "no",
        "core" if each.section.core else "",
    )


def _sections() -> Iterator[str]:
    for name, field in SubscriberFile.model_fields.items():
        section = field.annotation
        assert section is not None
        yield f"### {name}\n\n{field.description}\n\n{keys(section)}"
