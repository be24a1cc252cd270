"""How tests ask a model, and what they offer it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from dodona.core.messages import SystemText, ToolSpec, UserText
from dodona.core.ports.model import Done, Model, ModelEvent, ModelRequest

Kind = TypeVar("Kind")

TOOLS = (
    ToolSpec(
        "weather",
        "The weather of a place",
        {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
    ),
    ToolSpec(
        "clock",
        "The time in a zone",
        {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]},
    ),
)


def question(prompt: str, **settings: Any) -> ModelRequest:
    messages = (SystemText("You are the oak of Dodona."), UserText(prompt))
    return ModelRequest(messages=messages, **settings)


async def ask(model: Model, request: ModelRequest) -> list[ModelEvent]:
    """All events of an answer. `Done` is the last of them, and only the last."""
    async with model.stream(request) as stream:
        events = [event async for event in stream]
    assert [index for index, event in enumerate(events, 1) if isinstance(event, Done)] == [
        len(events)
    ]
    return events


def of(kind: type[Kind], events: Sequence[object]) -> list[Kind]:
    return [event for event in events if isinstance(event, kind)]


def end(events: Sequence[ModelEvent]) -> Done:
    (done,) = of(Done, events)
    return done
