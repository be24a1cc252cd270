"""AgentConfig: the limits of one run."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta
from msgspec.structs import asdict

from dodona.core.json_document import check_document

# After its time limit, a tree has as long to end by itself before the runtime stops it.
TIMEOUT_GRACE_SECONDS: Final = 2.0

MaxIterations: TypeAlias = Annotated[int, Meta(ge=1, le=50)]


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a run, and the thresholds for warnings.

    A value out of bounds raises `BadRequest`, which states the bounds.
    """

    max_iterations: MaxIterations = 15
    soft_warning_percent: Annotated[int, Meta(ge=50, le=90)] = 70
    token_budget: Annotated[int, Meta(ge=1000, le=200_000)] = 50_000
    token_warning_percent: Annotated[int, Meta(ge=50, le=95)] = 80
    timeout_seconds: Annotated[int, Meta(ge=10, le=600)] = 120
    max_tool_calls_per_turn: Annotated[int, Meta(ge=1, le=20)] = 5
    max_parallel_tools: Annotated[int, Meta(ge=1, le=10)] = 3

    def __post_init__(self) -> None:
        check_document(self)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def iteration_warning(self) -> int:
        """The turn at which the user and the model get a warning."""
        return self.max_iterations * self.soft_warning_percent // 100
