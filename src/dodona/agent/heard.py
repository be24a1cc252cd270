"""What a model has said so far, of an answer that has not ended."""

from __future__ import annotations

from dataclasses import dataclass

from dodona.core.ports.model import ModelEvent, Restart, TextDelta, ThinkingDelta


@dataclass(slots=True)
class PartialAnswer:
    """Its text and its thinking, piece by piece."""

    text: str = ""
    thinking: str = ""

    def add(self, event: ModelEvent) -> None:
        if isinstance(event, TextDelta):
            self.text += event.text
        elif isinstance(event, ThinkingDelta):
            self.thinking += event.text
        elif isinstance(event, Restart):
            self.text = self.thinking = ""
