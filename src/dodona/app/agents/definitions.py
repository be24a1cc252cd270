"""Builds the configured agents and loads their trees."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from dodona.agent.api import ORACLE_TREE
from dodona.agent.leaves import REGISTRY
from dodona.app.agents.souls import read_soul
from dodona.app.config.config import Config
from dodona.app.config.settings import AgentSection
from dodona.concurrency.file_watcher import FileWatcher
from dodona.core.domain.agents import AgentDef, Agents, QueueMode
from dodona.core.events import Emit
from dodona.documents import KeyPath
from dodona.trees import Reloader, Tree


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
    """The tree of each agent. With a `watcher`, a tree is reloaded when its file changes."""

    def __init__(self, stack: AsyncExitStack, emit: Emit, watcher: FileWatcher | None) -> None:
        self._stack = stack
        self._emit = emit
        self._watcher = watcher
        self._by_path: dict[Path, Reloader] = {}
        self._by_agent: dict[str, Reloader] = {}

    async def load(self, config: Config) -> dict[str, Reloader]:
        """Load the trees of all agents, for `apply`; raise if one does not load."""
        trees: dict[str, Reloader] = {}
        for name, agent, path in _all_agents(config):
            tree = agent.tree
            file = ORACLE_TREE if tree is None else config.resolve(tree, (*path, "tree"))
            trees[name] = await self._load_tree(await asyncio.to_thread(file.absolute))
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
            if self._watcher is not None:
                await self._stack.enter_async_context(reloader.watching(self._watcher))
            self._by_path[file] = reloader
        return self._by_path[file]
