"""subscribers.md, of who makes notices of events."""

from __future__ import annotations

from collections.abc import Iterator

from dodona.core.domain.notices import InjectionPoint
from dodona.notify import BUILTIN_SUBSCRIBERS
from dodona.notify.inbox import MAX_BATCHES
from dodona.notify.subscriber import Subscriber, SubscriberFile, read_subscriber
from generating.sections import keys
from generating.writing import page, prose, table

POINTS = {
    InjectionPoint.IMMEDIATE: "the next of the points below",
    InjectionPoint.TURN_START: "before the model is asked",
    InjectionPoint.AFTER_TOOL: "after the calls of a turn",
    InjectionPoint.TURN_END: "at the end of a turn",
}


def subscribers_page() -> str:
    found = list(shipped())
    return page(
        "# Subscribers",
        prose("""A subscriber makes notices of [events](events.md): what the agent reads, and what
            people see as a [`system` chunk](chunks.md#system). Each is a TOML file. Your own are in
            the folder [`subscribers.folder`](config.md#subscribers), or in `subscribers` of a pack;
            what is saved there is used within a second. [How to subscribe to
            events](../how-to/subscribe-to-events.md) has examples, and
            [notices](../explanation/notices.md) tells how they reach the model."""),
        "## Shipped",
        prose("""A core one cannot be turned off. What is not kept is told once, and is not part of
            the conversation's history."""),
        table(
            ("subscriber", "what it tells", "of events", "when", "kept", ""),
            [_row(each) for each in found],
        ),
        "## File",
        *_sections(),
        "## Points",
        table(("inject_at", "when"), [(f"`{p.value}`", told) for p, told in POINTS.items()]),
        prose(f"""A notice that is due while the model writes is read with its next request. At the
            end of a run, what still waits is told to people. An inbox holds {MAX_BATCHES} batches;
            of more, those of the lowest priority go, and a notice says how many."""),
        "## Templates",
        prose("""They are Jinja2 in a sandbox. `events` are all events of the batch, `event` is the
            last and `payload` its payload, `count` says how many there are. `rows` are all payloads
            as a table in TOON, or as JSON where that is shorter. A template that gives no text
            makes no notice for whom it is meant."""),
    )


def shipped() -> Iterator[Subscriber]:
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
