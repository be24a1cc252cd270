"""ModelSettings: what a user has chosen, kept as one flat map."""

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
_LIMIT_NAMES = tuple(known.name for known in fields(AgentConfig))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """Which models answer, and within which limits. An empty model is the configured one."""

    oracle_model: str = ""
    subagent_model: str = ""
    thinking_enabled: bool = True
    librarian_timeout: int = 1200
    max_context_nodes: int = 30
    limits: AgentConfig = field(default_factory=AgentConfig)

    def __post_init__(self) -> None:
        wrong = [
            mistake
            for name, bounds in _BOUNDS.items()
            if (mistake := check_bounds(name, getattr(self, name), bounds)) is not None
        ]
        wrong += [
            BadRequest(f"{name} must be the name of a model.")
            for name in ("oracle_model", "subagent_model")
            if not isinstance(getattr(self, name), str)
        ]
        if type(self.thinking_enabled) is not bool:
            wrong.append(BadRequest("thinking_enabled must be true or false."))
        if wrong:
            raise BadRequest.combine(wrong)

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Self:
        """From the flat map; what is missing takes its default, what is wrong is told at once."""
        own = [known.name for known in fields(cls) if known.name != "limits"]
        known = (*own, *_LIMIT_NAMES)
        found: list[DodonaError] = [
            BadRequest(f"there is no setting {name}.", hint=did_you_mean(name, known))
            for name in values
            if name not in known
        ]
        limits, made = AgentConfig(), cls()
        try:
            limits = AgentConfig(**{name: values[name] for name in _LIMIT_NAMES if name in values})
        except BadRequest as wrong:
            found += wrong.problems()
        try:
            made = cls(limits=limits, **{name: values[name] for name in own if name in values})
        except BadRequest as wrong:
            found += wrong.problems()
        if found:
            raise BadRequest.combine(found)
        return made

    def with_changes(self, values: Mapping[str, Any]) -> Self:
        """With some of them changed."""
        return self.read({**self.as_dict(), **values})

    def as_dict(self) -> dict[str, Any]:
        """The flat map, as it is kept and shown."""
        whole = asdict(self)
        limits = whole.pop("limits")
        return {**whole, **limits}
