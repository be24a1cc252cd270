"""ModelSettings: a user's settings, stored as one flat map."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from dodona.agent.turn_control.config import AgentConfig, check_bounds
from dodona.core.errors import BadRequest, DodonaError, did_you_mean

_BOUNDS: Mapping[str, tuple[int, int]] = {
    "librarian_timeout": (10, 7200),
    "max_context_nodes": (1, 1000),
}
_LIMIT_NAMES = tuple(each.name for each in fields(AgentConfig))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """The models that answer, and their limits. An empty name selects the configured model."""

    oracle_model: str = ""
    subagent_model: str = ""
    thinking_enabled: bool = True
    librarian_timeout: int = 1200
    max_context_nodes: int = 30
    limits: AgentConfig = field(default_factory=AgentConfig)

    def __post_init__(self) -> None:
        problems = [
            problem
            for name, bounds in _BOUNDS.items()
            if (problem := check_bounds(name, getattr(self, name), bounds)) is not None
        ]
        problems += [
            BadRequest(f"{name} must be the name of a model.")
            for name in ("oracle_model", "subagent_model")
            if not isinstance(getattr(self, name), str)
        ]
        if type(self.thinking_enabled) is not bool:
            problems.append(BadRequest("thinking_enabled must be true or false."))
        if problems:
            raise BadRequest.combine(problems)

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Self:
        """Read the flat map; missing values take their default. Raise all problems at once."""
        own_names = [each.name for each in fields(cls) if each.name != "limits"]
        all_names = (*own_names, *_LIMIT_NAMES)
        problems: list[DodonaError] = [
            BadRequest(f"there is no setting {name}.", hint=did_you_mean(name, all_names))
            for name in values
            if name not in all_names
        ]
        limits, settings = AgentConfig(), cls()
        try:
            limits = AgentConfig(**{name: values[name] for name in _LIMIT_NAMES if name in values})
        except BadRequest as error:
            problems += error.problems()
        try:
            own_values = {name: values[name] for name in own_names if name in values}
            settings = cls(limits=limits, **own_values)
        except BadRequest as error:
            problems += error.problems()
        if problems:
            raise BadRequest.combine(problems)
        return settings

    def with_changes(self, values: Mapping[str, Any]) -> Self:
        """Return a copy with some values changed."""
        return self.read({**self.as_dict(), **values})

    def as_dict(self) -> dict[str, Any]:
        """The flat map, as it is stored and shown."""
        values = asdict(self)
        limits = values.pop("limits")
        return {**values, **limits}
