"""What a run tells about itself: to the user in a system chunk, to the model in a hint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class TurnWarning:
    """`system_type` is limit_warning, limit_reached, no_progress or error_limit."""

    system_type: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def as_json(self) -> dict[str, Any]:
        return {
            "system_type": self.system_type,
            "text": self.text,
            "metadata": dict(self.metadata),
        }

    @property
    def topic(self) -> str:
        """What it is about: each is told once in a run."""
        return f"{self.system_type}:{self.metadata.get('limit', '')}"


def limit_reached(what: str, value: int, limit: int, advice: str) -> TurnWarning:
    return TurnWarning(
        "limit_reached",
        f"Stopped at the limit of {limit:,} {what}. {advice}",
        {"limit": what, "current_value": value, "limit_value": limit, "advice": advice},
    )
