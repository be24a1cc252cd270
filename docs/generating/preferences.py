"""Generates settings.md from the settings of a user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dodona.agent.turn_control.settings import ModelSettings
from dodona.gateway.openapi import build_openapi
from generating.schemas import takes
from generating.writing import page, prose, table

MEANINGS: Final[Mapping[str, str]] = {
    "oracle_model": "The model that answers. Empty means the configured model.",
    "subagent_model": "The model of the Librarian. Empty means `deepseek/deepseek-chat` if the "
    "agent uses DeepSeek or OpenRouter, otherwise the model that answers.",
    "thinking_enabled": "Enable thinking in models that support it. A question can override this.",
    "librarian_timeout": "The timeout of a Librarian task, in seconds.",
    "max_context_nodes": "The maximum number of earlier runs in a prompt.",
    "max_iterations": "The maximum number of turns per run.",
    "soft_warning_percent": "The percentage of turns after which the run gets a warning.",
    "token_budget": "The maximum number of tokens per run, not counting tokens read from the "
    "provider's cache.",
    "token_warning_percent": "The percentage of tokens after which the run gets a warning.",
    "timeout_seconds": "The timeout of a run, in seconds.",
    "max_tool_calls_per_turn": "The maximum number of tool calls per turn. Further calls fail.",
    "max_parallel_tools": "The maximum number of concurrent tool calls.",
}


def settings_page() -> str:
    """Return the text of settings.md."""
    schema = build_openapi()["components"]["schemas"]["ModelSettings"]["properties"]
    rows = [
        (f"`{name}`", takes(schema[name]), _shown(default), MEANINGS[name])
        for name, default in ModelSettings().as_dict().items()
    ]
    return page(
        "# User settings",
        prose("""Each user's models and run limits. They are in the store: read and change them
            with `GET` and `PATCH /api/settings` ([how to set limits](../how-to/set-limits.md)). A
            run keeps the settings it started with. The settings of the installation are in [the
            config file](config.md)."""),
        table(("setting", "type", "default", ""), rows),
    )


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default:,}`" if isinstance(default, int) else ""
