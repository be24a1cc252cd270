"""ModelSettings: a user's settings, stored as one flat map."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, get_type_hints

from msgspec import UNSET, Meta, UnsetType, defstruct
from msgspec.structs import fields

from dodona.agent.turn_control.config import AgentConfig
from dodona.core.errors import BadRequest, InvalidField
from dodona.core.json_document import RequestDocument, parse_document

MAX_LOGGED_PROBLEMS: Final = 1_000  # that are remembered, so that each is logged once

ModelName: TypeAlias = Annotated[
    str, Meta(description="The name of a model; empty for the configured one.")
]

_log = logging.getLogger(__name__)


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


def read_settings(stored: Mapping[str, Any], *, user_id: str) -> ModelSettings:
    """Return the stored settings of a user. What this version cannot use is ignored and logged.

    Another version of Dodona may have stored it, and had other settings or other bounds.
    """
    known = {name: value for name, value in stored.items() if name in _SETTING_NAMES}
    for name in stored.keys() - known.keys():
        _log_once(user_id, f"there is no setting {name!r:.80}.")
    try:
        return parse_document(ModelSettings, known)
    except BadRequest as error:
        for problem in error.problems():
            assert isinstance(problem, InvalidField)
            _log_once(user_id, f"{problem} The default applies.")
            del known[problem.field]
        return parse_document(ModelSettings, known)


@lru_cache(maxsize=MAX_LOGGED_PROBLEMS)
def _log_once(user_id: str, problem: str) -> None:
    _log.warning("ignored a stored setting of user %s: %s", user_id, problem)


_SETTING_NAMES = frozenset(ModelSettings.__struct_fields__)

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
