"""AgentConfig: how far one run may go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from dodona.core.errors import BadRequest, did_you_mean

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
    """Limits of a run and when to warn of them. Out of bounds is refused, with the bounds."""

    bounds: ClassVar[Mapping[str, tuple[int, int]]] = BOUNDS

    max_iterations: int = 15
    soft_warning_percent: int = 70
    token_budget: int = 50_000
    token_warning_percent: int = 80
    timeout_seconds: int = 120
    max_tool_calls_per_turn: int = 5
    max_parallel_tools: int = 3

    def __post_init__(self) -> None:
        wrong = [
            mistake
            for name, bounds in self.bounds.items()
            if (mistake := check_bounds(name, getattr(self, name), bounds)) is not None
        ]
        if wrong:
            raise BadRequest.combine(wrong)

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Self:
        """The config in a mapping; what is missing takes its default."""
        names = [known.name for known in fields(cls)]
        unknown = [name for name in values if name not in names]
        if unknown:
            raise BadRequest.combine(
                [
                    BadRequest(f"there is no setting {name}.", hint=did_you_mean(name, names))
                    for name in unknown
                ]
            )
        return cls(**values)

    def as_dict(self) -> dict[str, int]:
        # Rules look at it at each of their moments; `asdict` takes five times as long.
        return {known.name: getattr(self, known.name) for known in fields(self)}

    @property
    def iteration_warning(self) -> int:
        """The turn at which the user and the model are warned."""
        return self.max_iterations * self.soft_warning_percent // 100

    @property
    def token_warning(self) -> int:
        return self.token_budget * self.token_warning_percent // 100


def check_bounds(name: str, value: object, bounds: tuple[int, int]) -> BadRequest | None:
    """What is wrong with a whole number that has bounds, if anything."""
    lowest, highest = bounds
    if type(value) is int and lowest <= value <= highest:
        return None
    return BadRequest(f"{name} must be a whole number from {lowest} to {highest} (got {value!r}).")
