"""The agents of a config: what runs see of them, and the tree that each follows."""

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
from dodona.core.domain.agents import AgentDef, Agents, QueueMode
from dodona.core.events import Emit
from dodona.documents import KeyPath
from dodona.trees import Reloader, Tree


def load_agents(config: Config) -> Agents:
    """What there is to be known of them. It reads their souls, and so blocks."""
    made = {
        name: _build_agent(config, name, agent, path) for name, agent, path in _all_agents(config)
    }
    default = made.pop(config.settings.agent.id)
    return Agents(default, made)


def soul_files(config: Config) -> dict[str, Path]:
    """Where the souls are, by agent."""
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
    """The tree of each agent, as its file is now; without `follow`, as it was."""

    def __init__(self, stack: AsyncExitStack, emit: Emit, *, watch: bool) -> None:
        self._stack = stack
        self._emit = emit
        self._watch = watch
        self._by_path: dict[Path, Reloader] = {}
        self._by_agent: dict[str, Reloader] = {}

    async def load(self, config: Config) -> dict[str, Reloader]:
        """The trees of these agents, to be taken; raises if one of them does not load."""
        found: dict[str, Reloader] = {}
        for name, agent, path in _all_agents(config):
            named = agent.tree
            file = ORACLE_TREE if named is None else config.resolve(named, (*path, "tree"))
            found[name] = await self._load_tree(file.absolute())
        return found

    def apply(self, loaded: dict[str, Reloader]) -> None:
        self._by_agent = loaded

    def __call__(self, agent_id: str) -> Tree:
        return self._by_agent[agent_id].tree()

    async def _load_tree(self, file: Path) -> Reloader:
        if file not in self._by_path:
            made = partial(Reloader, [file], registry=REGISTRY, emit=self._emit)
            reloader = await asyncio.to_thread(made)
            if self._watch:
                await self._stack.enter_async_context(reloader.watching())
            self._by_path[file] = reloader
        return self._by_path[file]
