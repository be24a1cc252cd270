"""ModelSettings: a user's settings, stored as one flat map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_type_hints

from msgspec import UNSET, Meta, UnsetType, defstruct
from msgspec.structs import fields

from dodona.agent.turn_control.config import AgentConfig
from dodona.core.json_document import RequestDocument

ModelName: TypeAlias = Annotated[
    str, Meta(description="The name of a model; empty for the configured one.")
]


class ModelSettings(AgentConfig, frozen=True, kw_only=True):
    """The models that answer, and the limits of their runs."""

    oracle_model: ModelName = ""
    subagent_model: ModelName = ""
    thinking_enabled: bool = True
    librarian_timeout: Annotated[int, Meta(ge=10, le=7200)] = 1200
    max_context_nodes: Annotated[int, Meta(ge=1, le=1000)] = 30

    @property
    def limits(self) -> AgentConfig:
        """The limits of a run."""
        return AgentConfig(**{name: getattr(self, name) for name in _LIMIT_NAMES})


_LIMIT_NAMES = tuple(field.name for field in fields(AgentConfig))

if TYPE_CHECKING:
    SettingsChange: TypeAlias = RequestDocument
else:
    # The fields of ModelSettings, all of them optional.
    SettingsChange = defstruct(
        "SettingsChange",
        [
            (name, hint | UnsetType, UNSET)
            for name, hint in get_type_hints(ModelSettings, include_extras=True).items()
        ],
        bases=(RequestDocument,),
        namespace={"__doc__": "Some settings; the others stay as they are."},
        kw_only=True,
        forbid_unknown_fields=True,
    )


def changed_values(change: SettingsChange) -> dict[str, Any]:
    """Return the settings that a change sets, by name."""
    values = {field.name: getattr(change, field.name) for field in fields(change)}
    return {name: value for name, value in values.items() if value is not UNSET}
