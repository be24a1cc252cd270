"""AgentState: the progress of a run. It is immutable; each turn creates a new state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from time import time
from types import MappingProxyType
from typing import Any, Self

from dodona.agent.turn_control.config import AgentConfig

MAX_RECENT_ACTIONS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentState:
    """Progress of a run. `extensions` holds values that only decision trees use."""

    user_id: str
    project_id: str
    config: AgentConfig
    turn: int = 0
    tokens_used: int = 0
    start_time: float = field(default_factory=time)
    recent_actions: tuple[str, ...] = ()
    termination_reason: str | None = None
    extensions: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if self.turn < 0:
            raise ValueError(f"turn must not be negative (got {self.turn})")
        if self.tokens_used < 0:
            raise ValueError(f"tokens_used must not be negative (got {self.tokens_used})")
        if self.start_time > time():
            raise ValueError("start_time must not be in the future")
        if len(self.recent_actions) > MAX_RECENT_ACTIONS:
            raise ValueError(f"recent_actions must have at most {MAX_RECENT_ACTIONS} entries")
        object.__setattr__(self, "extensions", MappingProxyType(dict(self.extensions)))

    @property
    def is_terminal(self) -> bool:
        return self.termination_reason is not None

    @property
    def elapsed_seconds(self) -> float:
        return time() - self.start_time

    @property
    def iteration_percent(self) -> float:
        return self.turn / self.config.max_iterations * 100

    @property
    def token_percent(self) -> float:
        return self.tokens_used / self.config.token_budget * 100

    @classmethod
    def read(
        cls, record: Mapping[str, Any], *, user_id: str, project_id: str, config: AgentConfig
    ) -> Self:
        """Read the output of `as_json`; an empty record is a run that starts now."""
        return cls(
            user_id=user_id,
            project_id=project_id,
            config=config,
            turn=record.get("turn", 0),
            tokens_used=record.get("tokens_used", 0),
            start_time=record.get("start_time") or time(),
            recent_actions=tuple(record.get("recent_actions", ())),
            termination_reason=record.get("termination_reason"),
            extensions=record.get("extensions", {}),
        )

    def as_json(self) -> dict[str, Any]:
        """All fields except the user, the project and the limits, which come from the run."""
        return {
            "turn": self.turn,
            "tokens_used": self.tokens_used,
            "start_time": self.start_time,
            "recent_actions": list(self.recent_actions),
            "termination_reason": self.termination_reason,
            "extensions": dict(self.extensions),
        }

    def with_extensions(self, **extensions: Any) -> Self:
        return replace(self, extensions={**self.extensions, **extensions})

    def with_pause(self, seconds: float) -> Self:
        """Exclude time from the timeout: while an approval was pending, or no process ran it."""
        return replace(self, start_time=min(self.start_time + seconds, time()))

    def terminated(self, reason: str) -> Self:
        """Return the state as ended. The first reason counts."""
        return self if self.is_terminal else replace(self, termination_reason=reason)
