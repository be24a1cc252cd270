"""Builds the configured agents and loads their trees."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dodona.agent.api import ORACLE_TREE
from dodona.app.agents.souls import read_soul
from dodona.app.config.config import Config
from dodona.app.config.settings import AgentSection
from dodona.concurrency.file_watcher import FileWatcher
from dodona.core.domain.agents import DEFAULT_DECISION_TREE, AgentDef, Agents, QueueMode
from dodona.core.events import Emit
from dodona.documents import KeyPath
from dodona.trees import Registry, Reloader, Tree


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
        decision_tree=agent.decision_tree or DEFAULT_DECISION_TREE,
        queueing=QueueMode(agent.queue),
        queue_limit=agent.queue_limit,
    )


def _load_soul(config: Config, agent: AgentSection, path: KeyPath) -> str:
    if agent.soul_path is None:
        return ""
    return read_soul(config.resolve(agent.soul_path, path))


@dataclass(frozen=True, slots=True)
class LoadedTrees:
    """The trees of all agents, loaded with a registry, for `AgentTrees.apply`."""

    registry: Registry
    by_agent: Mapping[str, Reloader]
    trees: Mapping[Reloader, Mapping[str, Tree]]


class AgentTrees:
    """The tree of each agent. With a `watcher`, a tree is reloaded when its file changes."""

    def __init__(self, stack: AsyncExitStack, emit: Emit, watcher: FileWatcher | None) -> None:
        self._stack = stack
        self._emit = emit
        self._watcher = watcher
        self._by_path: dict[Path, Reloader] = {}
        self._by_agent: Mapping[str, Reloader] = {}

    async def load(self, config: Config, registry: Registry) -> LoadedTrees:
        """Load the trees of all agents, for `apply`; raise if one does not load."""
        by_agent: dict[str, Reloader] = {}
        for name, agent, path in _all_agents(config):
            tree = agent.tree
            file = ORACLE_TREE if tree is None else config.resolve(tree, (*path, "tree"))
            file = await asyncio.to_thread(file.absolute)
            by_agent[name] = await self._reloader_of(file, registry)
        trees = {
            each: await asyncio.to_thread(each.load, registry) for each in set(by_agent.values())
        }
        return LoadedTrees(registry, by_agent, trees)

    def apply(self, loaded: LoadedTrees) -> None:
        """Use these trees from now on."""
        for reloader, trees in loaded.trees.items():
            reloader.swap(loaded.registry, trees)
        self._by_agent = loaded.by_agent

    def __call__(self, agent_id: str) -> Tree:
        return self._by_agent[agent_id].tree()

    async def _reloader_of(self, file: Path, registry: Registry) -> Reloader:
        if file not in self._by_path:
            build = partial(Reloader, [file], registry=registry, emit=self._emit)
            reloader = await asyncio.to_thread(build)
            if self._watcher is not None:
                await self._stack.enter_async_context(reloader.watching(self._watcher))
            self._by_path[file] = reloader
        return self._by_path[file]
