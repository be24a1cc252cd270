"""The agents in use, with their models, trees and bindings."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from dodona.app.agents.definitions import AgentTrees, load_agents
from dodona.app.config.config import Config
from dodona.app.extensions.loading import ExtensionLoader, LoadedExtensions
from dodona.app.extensions.registry import AppRegistry
from dodona.app.models.credentials import Credentials
from dodona.app.models.factory import ConfiguredModels, ModelBuilder, build_agent_models
from dodona.app.models.probe import default_targets
from dodona.app.models.selection import ModelChoice, ModelSelector
from dodona.concurrency.file_watcher import FileWatcher
from dodona.core.domain.agents import Agents
from dodona.core.domain.routing import Binding, LiveRouter, Router
from dodona.core.events import Emit

BuildRegistry = Callable[[LoadedExtensions], AppRegistry]


class LiveAgents:
    """The current agents and what they use. When the config changes, all of it changes together.

    So it does when an extension changes. `build_registry` adds the built-in tools; it blocks.
    """

    def __init__(
        self,
        stack: AsyncExitStack,
        *,
        builder: ModelBuilder,
        emit: Emit,
        watcher: FileWatcher | None,
        loader: ExtensionLoader,
        build_registry: BuildRegistry,
    ) -> None:
        self._builder = builder
        self._loader = loader
        self._build_registry = build_registry
        self._config: Config | None = None
        self._loaded: LoadedExtensions | None = None
        self._registry: AppRegistry | None = None
        self.agents = Agents()
        self.model_choices: Mapping[str, ModelChoice] = {}  # by agent name; [agent] is ""
        self.models = ConfiguredModels(builder)
        self.trees = AgentTrees(stack, emit, watcher)
        self.router = LiveRouter()  # which agent answers which messages

    @property
    def registry(self) -> AppRegistry:
        """What agents can use."""
        assert self._registry is not None, "apply() comes first"
        return self._registry

    def extension_files(self) -> list[Path]:
        """Return the files of extensions."""
        return [] if self._config is None else self._loader.files(self._config)

    async def reload_extensions(self) -> bool:
        """Load extensions that have changed; return whether there were any. See `apply`."""
        assert self._config is not None
        loaded = await asyncio.to_thread(self._loader.load, self._config)
        if loaded is self._loaded:
            return False
        await self.apply(self._config)
        return True

    async def apply(self, config: Config) -> None:
        """Switch to the agents of this config; raise and change nothing if one is invalid."""
        settings = config.settings
        loaded = await asyncio.to_thread(self._loader.load, config)
        registry = self._registry
        if registry is None or loaded is not self._loaded:
            registry = await asyncio.to_thread(self._build_registry, loaded)
        config.check_names(registry.names())
        builder = replace(self._builder, extensions=registry.providers)
        selector = ModelSelector(
            config,
            Credentials(config, os.environ, builder.redactor),
            http=builder.http,
            targets=default_targets(os.environ),
            extensions=registry.providers,
        )
        choices = {name: await selector.choose(name) for name in ("", *settings.agents)}
        agents = await asyncio.to_thread(load_agents, config)
        router = await asyncio.to_thread(make_router, config)
        trees = await self.trees.load(config, registry.agent.leaves)
        models = await asyncio.to_thread(build_agent_models, builder, settings, choices)
        # No await from here on: a run sees either the old agents or the new ones.
        self._config, self._loaded, self._registry = config, loaded, registry
        self.trees.apply(trees)
        self.models.apply(models, selector, builder, default=settings.agent.id)
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
