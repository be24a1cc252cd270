"""What `[[bindings]]` demand: an agent that there is, and somebody whom it answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from dodona.app.config import shape as schema
from dodona.app.config.errors import mistakes
from dodona.app.config.origins import SettingOrigins
from dodona.app.config.validation.agents import agent_names
from dodona.core.errors import ConfigError
from dodona.core.suggest import did_you_mean

MATCHES: Final = ("channel", "account_id", "peer_id", "guild_id", "team_id")


def validate_bindings(table: Mapping[str, Any], places: SettingOrigins) -> Iterator[ConfigError]:
    bindings = table.get("bindings")
    if not isinstance(bindings, list):
        return
    names = agent_names(table)
    known = frozenset(names)
    for place, binding in enumerate(cast("list[Any]", bindings)):
        if not schema.is_table(binding):
            continue
        agent = binding.get("agent_id")
        if isinstance(agent, str) and agent and agent not in known:
            yield mistakes(places).wrong(
                ("bindings", place, "agent_id"),
                "names no agent",
                got=agent,
                hint=did_you_mean(agent, names) or f"Agents are {', '.join(names)}.",
            )
        if not any(key in binding for key in MATCHES):
            yield mistakes(places).wrong(
                ("bindings", place),
                "matches everybody, as the default agent does",
                hint=f"Set one of {', '.join(MATCHES)}.",
            )
