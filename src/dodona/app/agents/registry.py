"""The agents in use, with their models, trees and bindings."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from dodona.agent.api import ORACLE_TREE
from dodona.agent.leaves import REGISTRY
from dodona.app.agents.souls import read_soul
from dodona.app.config.config import Config
from dodona.app.config.settings import AgentSection
from dodona.app.models.credentials import Credentials
from dodona.app.models.factory import ConfiguredModels
from dodona.app.models.probe import default_targets
from dodona.app.models.selection import ModelChoice, ModelSelector
from dodona.core.domain.agents import AgentDef, Agents, QueueMode
from dodona.core.domain.routing import Binding, LiveRouter, Router
from dodona.core.events import Emit
from dodona.core.ports.model import TokenCounter
from dodona.documents import KeyPath
from dodona.net.http import HttpPool
from dodona.net.redactor import Redactor
from dodona.trees import Reloader, Tree


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


# -- definitions and trees ----------------------------------------------------------------------


def load_agents(config: Config) -> Agents:
    """Return all configured agents. Blocks, because it reads the soul files."""
    agents = {
        name: _build_agent(config, name, agent, path) for name, agent, path in _all_agents(config)
    }
    default = agents.pop(config.settings.agent.id)
    return Agents(default, agents)


def soul_files(config: Config) -> dict[str, Path]:
    """Return the path of each agent's soul file, by agent name."""
    return {
        name: config.resolve(agent.soul_path, (*path, "soul_path"))
        for name, agent, path in _all_agents(config)
        if agent.soul_path is not None
    }


def _all_agents(config: Config) -> Iterator[tuple[str, AgentSection, KeyPath]]:
    settings = config.settings
    yield settings.agent.id, settings.agent, ("agent",)
    for name, agent in settings.agents.items():
        yield name, agent, ("agents", name)


def _build_agent(config: Config, name: str, agent: AgentSection, path: KeyPath) -> AgentDef:
    return AgentDef(
        id=name,
        tools=None if agent.tools is None else frozenset(agent.tools),
        soul=_load_soul(config, agent, (*path, "soul_path")),
        system_prompt=agent.system_prompt or "",
        queueing=QueueMode(agent.queue),
        queue_limit=agent.queue_limit,
    )


def _load_soul(config: Config, agent: AgentSection, path: KeyPath) -> str:
    if agent.soul_path is None:
        return ""
    return read_soul(config.resolve(agent.soul_path, path))


class AgentTrees:
    """The tree of each agent. With `watch`, a tree is reloaded when its file changes."""

    def __init__(self, stack: AsyncExitStack, emit: Emit, *, watch: bool) -> None:
        self._stack = stack
        self._emit = emit
        self._watch = watch
        self._by_path: dict[Path, Reloader] = {}
        self._by_agent: dict[str, Reloader] = {}

    async def load(self, config: Config) -> dict[str, Reloader]:
        """Load the trees of all agents, for `apply`; raise if one does not load."""
        trees: dict[str, Reloader] = {}
        for name, agent, path in _all_agents(config):
            tree = agent.tree
            file = ORACLE_TREE if tree is None else config.resolve(tree, (*path, "tree"))
            trees[name] = await self._load_tree(file.absolute())
        return trees

    def apply(self, loaded: dict[str, Reloader]) -> None:
        """Use these trees from now on."""
        self._by_agent = loaded

    def __call__(self, agent_id: str) -> Tree:
        return self._by_agent[agent_id].tree()

    async def _load_tree(self, file: Path) -> Reloader:
        if file not in self._by_path:
            build = partial(Reloader, [file], registry=REGISTRY, emit=self._emit)
            reloader = await asyncio.to_thread(build)
            if self._watch:
                await self._stack.enter_async_context(reloader.watching())
            self._by_path[file] = reloader
        return self._by_path[file]
