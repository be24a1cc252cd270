"""The agents in use, with their models, trees and bindings."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack

from dodona.app.agents.definitions import AgentTrees, load_agents
from dodona.app.config.config import Config
from dodona.app.models.credentials import Credentials
from dodona.app.models.factory import ConfiguredModels
from dodona.app.models.probe import default_targets
from dodona.app.models.selection import ModelChoice, ModelSelector
from dodona.core.domain.agents import Agents
from dodona.core.domain.routing import Binding, LiveRouter, Router
from dodona.core.events import Emit
from dodona.core.ports.model import TokenCounter
from dodona.net.http import HttpPool
from dodona.net.redactor import Redactor


class LiveAgents:
    """The current agents. When the config changes, everything here changes together."""

    def __init__(
        self,
        stack: AsyncExitStack,
        *,
        http: HttpPool,
        redactor: Redactor,
        counter: TokenCounter,
        emit: Emit,
        watch: bool,
    ) -> None:
        self._http = http
        self._redactor = redactor
        self.agents = Agents()
        self.model_choices: Mapping[str, ModelChoice] = {}  # by agent name; [agent] is ""
        self.models = ConfiguredModels(http=http, redactor=redactor, counter=counter)
        self.trees = AgentTrees(stack, emit, watch=watch)
        self.router = LiveRouter()  # which agent answers which messages

    async def apply(self, config: Config) -> None:
        """Switch to the agents of this config; raise and change nothing if one is invalid."""
        settings = config.settings
        credentials = Credentials(config, os.environ, self._redactor)
        selector = ModelSelector(
            config, credentials, http=self._http, targets=default_targets(os.environ)
        )
        choices = {name: await selector.choose(name) for name in ("", *settings.agents)}
        agents = await asyncio.to_thread(load_agents, config)
        router = await asyncio.to_thread(make_router, config)
        trees = await self.trees.load(config)
        models = await asyncio.to_thread(self.models.build, settings, choices)
        # No await from here on: a run sees either the old agents or the new ones.
        self.trees.apply(trees)
        self.models.apply(models, selector, default=settings.agent.id)
        self.router.replace(router)
        self.agents, self.model_choices = agents, choices

    def current(self) -> Agents:
        """Return the agents of the current config."""
        return self.agents


def make_router(config: Config) -> Router:
    """Build the router from the bindings; the default agent answers all other messages."""
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
                where=config.origins.nearest(("bindings", index)),
            )
            for index, each in enumerate(settings.bindings)
        ),
        settings.agent.id,
    )
