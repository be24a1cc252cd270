"""AgentConfig: the limits of one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar

from dodona.core.errors import BadRequest

BOUNDS: Mapping[str, tuple[int, int]] = {
    "max_iterations": (1, 50),
    "soft_warning_percent": (50, 90),
    "token_budget": (1000, 200_000),
    "token_warning_percent": (50, 95),
    "timeout_seconds": (10, 600),
    "max_tool_calls_per_turn": (1, 20),
    "max_parallel_tools": (1, 10),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """Limits of a run, and the thresholds for warnings.

    A value out of bounds raises `BadRequest`, which states the bounds.
    """

    bounds: ClassVar[Mapping[str, tuple[int, int]]] = BOUNDS

    max_iterations: int = 15
    soft_warning_percent: int = 70
    token_budget: int = 50_000
    token_warning_percent: int = 80
    timeout_seconds: int = 120
    max_tool_calls_per_turn: int = 5
    max_parallel_tools: int = 3

    def __post_init__(self) -> None:
        problems = [
            problem
            for name, bounds in self.bounds.items()
            if (problem := check_bounds(name, getattr(self, name), bounds)) is not None
        ]
        if problems:
            raise BadRequest.combine(problems)

    def as_dict(self) -> dict[str, int]:
        # Rules read it for every event; `asdict` takes five times as long.
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def iteration_warning(self) -> int:
        """The turn at which the user and the model get a warning."""
        return self.max_iterations * self.soft_warning_percent // 100


def check_bounds(name: str, value: object, bounds: tuple[int, int]) -> BadRequest | None:
    """Return an error if a value is not an integer within its bounds, else None."""
    lowest, highest = bounds
    if type(value) is int and lowest <= value <= highest:
        return None
    return BadRequest(f"{name} must be a whole number from {lowest} to {highest} (got {value!r}).")
