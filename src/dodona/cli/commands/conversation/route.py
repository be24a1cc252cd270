"""`dodona route`: which agent would answer a message, and why."""

from __future__ import annotations

import os
from typing import Annotated, Any

from cyclopts import Parameter

from dodona.app.agents.registry import make_router
from dodona.app.config.config import load_config
from dodona.cli.arguments import AsJson
from dodona.cli.commands.project.config import ConfigFile
from dodona.cli.terminal.output import format_columns, print_json, print_text
from dodona.core.domain.conversations.sessions import session_key
from dodona.core.domain.routing import Binding

_PRECEDENCE = "peer comes before guild, team, account and channel; then more fields, then the first"


def route(
    *,
    channel: Annotated[str, Parameter(help="Through what the message comes, like telegram.")],
    account: Annotated[str | None, Parameter(help="The account within the channel.")] = None,
    peer: Annotated[str | None, Parameter(help="The person or group that it is from.")] = None,
    guild: Annotated[str | None, Parameter(help="The guild or server.")] = None,
    team: Annotated[str | None, Parameter(help="The team within the guild.")] = None,
    config: ConfigFile = None,
    json: AsJson = False,
) -> None:
    """Tell which agent would answer a message, by which binding, and in which session."""
    message = {"channel": channel, "account": account, "peer": peer, "guild": guild, "team": team}
    message = {name: value or None for name, value in message.items()}
    router = make_router(load_config(os.environ, config))
    found = router.resolve(**message)
    key = session_key(found.agent_id, channel, account, peer) if account else None
    beaten = [each for each in router.candidates(**message) if each is not found.binding]
    if json:
        print_json(
            {
                "agent_id": found.agent_id,
                "level": found.level,
                "explanation": found.explanation,
                "binding": _binding_json(found.binding) if found.binding else None,
                "others": [_binding_json(each) for each in beaten],
                "session_key": key,
            }
        )
        return
    rows = [
        ("agent", found.agent_id),
        ("because", found.explanation),
        ("session", key or "its key needs --account"),
        *(("beaten", f"{each.agent_id}: {each}.") for each in beaten),
    ]
    print_text(format_columns(rows))
    if beaten:
        print_text(f"\nOf bindings that match, {_PRECEDENCE}.")


def _binding_json(binding: Binding) -> dict[str, Any]:
    return {
        "agent_id": binding.agent_id,
        **{name: getattr(binding, name) for name in binding.fields},
        "where": str(binding.where) if binding.where else None,
    }
