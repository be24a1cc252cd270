"""The router that the settings ask for."""

from __future__ import annotations

from dodona.app.config.config import Config
from dodona.core.domain.routing import Binding, Router


def make_router(config: Config) -> Router:
    """Bindings with their places in the file; the unnamed agent answers all others."""
    settings = config.settings
    return Router(
        (
            Binding(
                agent_id=each.agent_id,
                channel=each.channel,
                account=each.account_id,
                peer=each.peer_id,
                guild=each.guild_id,
                team=each.team_id,
                where=config.places.nearest(("bindings", place)),
            )
            for place, each in enumerate(settings.bindings)
        ),
        settings.agent.id,
    )
