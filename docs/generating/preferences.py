"""settings.md, of what users set for themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dodona.agent.turn_control.settings import ModelSettings
from dodona.gateway.openapi import build_openapi
from generating.schemas import takes
from generating.writing import page, prose, table

MEANINGS: Final[Mapping[str, str]] = {
    "oracle_model": "The model that answers; empty is the configured one.",
    "subagent_model": "The model of the Librarian; empty is the one that answers.",
    "thinking_enabled": "Whether models that can think do so, unless the question says otherwise.",
    "librarian_timeout": "Seconds that the Librarian may take for one task.",
    "max_context_nodes": "How many earlier runs a question takes along at most.",
    "max_iterations": "How many turns a run may have.",
    "soft_warning_percent": "The part of its turns after which a run is warned, in percent.",
    "token_budget": "How many tokens a run may use, without those read from a provider's cache.",
    "token_warning_percent": "The part of its tokens after which a run is warned, in percent.",
    "timeout_seconds": "How long a run may take.",
    "max_tool_calls_per_turn": "How many tools are called in one turn; calls beyond get an error.",
    "max_parallel_tools": "How many of them at once.",
}


def settings_page() -> str:
    schema = build_openapi()["components"]["schemas"]["Settings"]["properties"]
    rows = [
        (f"`{name}`", takes(schema[name]), _shown(default), MEANINGS[name])
        for name, default in ModelSettings().as_dict().items()
    ]
    return page(
        "# Settings of a user",
        prose("""Which models answer a user, and within which limits. They are kept in the store:
            `GET` and `PATCH /api/settings` read and change them ([how to set
            limits](../how-to/set-limits.md)). What nobody has set has its default. A run keeps the
            settings it began with. What belongs to the installation is in [the config
            file](config.md)."""),
        table(("setting", "takes", "default", ""), rows),
    )


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default:,}`" if isinstance(default, int) else ""
