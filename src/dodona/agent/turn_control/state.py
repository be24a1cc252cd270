"""AgentState: the progress of a run. It is immutable; each turn creates a new state."""

from __future__ import annotations

from collections.abc import Mapping
from time import time
from types import MappingProxyType
from typing import Any, Final, Self

import msgspec
from msgspec.structs import force_setattr, replace

from dodona.agent.turn_control.config import AgentConfig
from dodona.core.chunks import SystemChunk

MAX_RECENT_ACTIONS = 3


class TurnWarning(msgspec.Struct, frozen=True):
    """A warning for the user and the model.

    `system_type` is limit_warning, limit_reached, no_progress or error_limit.
    """

    system_type: str
    text: str
    metadata: Mapping[str, Any] = {}

    @property
    def topic(self) -> str:
        """The subject of the warning. A run shows at most one warning per topic."""
        return f"{self.system_type}:{self.metadata.get('limit', '')}"

    def chunk(self) -> SystemChunk:
        """Return the chunk that shows the warning."""
        return SystemChunk(
            system_type=self.system_type,
            system_message=self.text,
            metadata=dict(self.metadata),
        )


class AgentState(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of a run. `extensions` holds JSON values of other decision trees than the default.

    `failed_turns` counts the turns in a row in which every tool call failed, up to `result_turn`,
    the turn of the last result. `stuck_since` is the turn in which the same call had the same
    result again. `downtime_seconds` are those without a process, which do not count towards the
    timeout.
    """

    user_id: str
    project_id: str
    config: AgentConfig = msgspec.field(default_factory=AgentConfig)
    turn: int = 0
    tokens_used: int = 0
    start_time: float = msgspec.field(default_factory=time)
    recent_actions: tuple[str, ...] = ()
    termination_reason: str | None = None
    errors_in_a_row: int = 0  # failed calls, for rules
    failed_turns: int = 0
    result_turn: int | None = None
    stuck_since: int | None = None
    downtime_seconds: float = 0.0
    pending_warnings: tuple[TurnWarning, ...] = ()  # not shown yet
    warned_topics: tuple[str, ...] = ()
    extensions: Mapping[str, Any] = {}

    def __post_init__(self) -> None:
        if self.turn < 0:
            raise ValueError(f"turn must not be negative (got {self.turn})")
        if self.tokens_used < 0:
            raise ValueError(f"tokens_used must not be negative (got {self.tokens_used})")
        if self.start_time > time():
            raise ValueError("start_time must not be in the future")
        if len(self.recent_actions) > MAX_RECENT_ACTIONS:
            raise ValueError(f"recent_actions must have at most {MAX_RECENT_ACTIONS} entries")
        force_setattr(self, "extensions", MappingProxyType(dict(self.extensions)))

    @property
    def is_terminal(self) -> bool:
        """Whether the run has a reason to end."""
        return self.termination_reason is not None

    @property
    def elapsed_seconds(self) -> float:
        """The seconds that count towards the timeout."""
        return time() - self.start_time

    @property
    def iteration_percent(self) -> float:
        return self.turn / self.config.max_iterations * 100

    @property
    def token_percent(self) -> float:
        return self.tokens_used / self.config.token_budget * 100

    def stored(self) -> dict[str, Any]:
        """Return the JSON form, without the user, the project and the limits of the run."""
        values = {name: getattr(self, name) for name in _STORED_FIELDS}
        return msgspec.to_builtins({**values, "extensions": dict(self.extensions)})

    def with_extensions(self, **extensions: Any) -> Self:
        """Return the state with these JSON values in `extensions`. They survive a crash."""
        return replace(self, extensions={**self.extensions, **extensions})

    def with_warning(self, warning: TurnWarning) -> Self:
        """Add a pending warning, once per topic."""
        if warning.topic in self.warned_topics:
            return self
        return replace(
            self,
            warned_topics=(*self.warned_topics, warning.topic),
            pending_warnings=(*self.pending_warnings, warning),
        )

    def with_pause(self, seconds: float) -> Self:
        """Exclude time from the timeout: while an approval was pending, or no process ran it."""
        return replace(self, start_time=min(self.start_time + seconds, time()))

    def terminated(self, reason: str) -> Self:
        """Return the state as ended. The first reason counts."""
        return self if self.is_terminal else replace(self, termination_reason=reason)


_STORED_FIELDS: Final = tuple(
    name for name in AgentState.__struct_fields__ if name not in ("user_id", "project_id", "config")
)
