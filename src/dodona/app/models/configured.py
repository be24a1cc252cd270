"""The models of a config, for each of its agents; each is made once, when it is first asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dodona.app.config.settings import Agent, Settings
from dodona.app.models.factory import build_model
from dodona.app.models.selection import ModelChoice, ModelSelector
from dodona.core.errors import ConfigError, NotFound
from dodona.core.ports.model import ChosenModel, TokenCounter
from dodona.models.catalogue.catalogue import facts
from dodona.net.http import Http
from dodona.net.redactor import Redactor

MOST_MODELS: Final = 64  # names come with requests


@dataclass(frozen=True, slots=True)
class AgentModels:
    """One agent's: the model that was chosen for it, and those that somebody named since."""

    agent: Agent
    usual: ChosenModel
    named: dict[str, ChosenModel] = field(default_factory=dict[str, ChosenModel])


class ConfiguredModels:
    """A `Models`. `choices` are those of the agents, by name; the empty name is [agent]."""

    def __init__(self, *, http: Http, redactor: Redactor, counter: TokenCounter) -> None:
        self._http = http
        self._redactor = redactor
        self._counter = counter
        self._chooser: ModelSelector | None = None
        self._default = ""
        self._agents: Mapping[str, AgentModels] = {}

    def build(
        self, settings: Settings, choices: Mapping[str, ModelChoice]
    ) -> dict[str, AgentModels]:
        """What was chosen for each agent, to be taken. It blocks, and loads vocabularies."""
        agents: Mapping[str, Agent] = {"": settings.agent, **settings.agents}
        return {
            name: AgentModels(agents[name], self._made(choice, agents[name]))
            for name, choice in choices.items()
        }

    def apply(
        self, built: Mapping[str, AgentModels], chooser: ModelSelector, *, default: str
    ) -> None:
        """Use these from now on; `default` is the name of [agent]."""
        self._agents, self._chooser, self._default = built, chooser, default

    async def choose(self, name: str = "", *, agent: str = "") -> ChosenModel:
        whose = "" if agent == self._default else agent
        of = self._agents.get(whose)
        if of is None:
            raise NotFound(f"there is no agent {agent!r:.80}.")
        if not name or name == of.usual.model.name:
            return of.usual
        if name not in of.named:
            if len(of.named) >= MOST_MODELS:
                of.named.clear()
            of.named[name] = await self._found(name, whose, of)
        return of.named[name]

    async def _found(self, name: str, whose: str, of: AgentModels) -> ChosenModel:
        assert self._chooser is not None
        try:
            choice = await self._chooser.choose_model(name, of=whose)
            return await asyncio.to_thread(self._made, choice, of.agent)
        except ConfigError as error:
            # Whoever asked must act, not the operator.
            raise NotFound(
                f"model {name!r:.80} cannot be used: {error.message}", hint=error.hint
            ) from error

    def _made(self, choice: ModelChoice, agent: Agent) -> ChosenModel:
        chain = tuple(choice.chain())
        for link in chain:
            self._counter.count("warm", link.model)  # else a loop stands still for it one day
        others = chain[1:]
        return ChosenModel(
            model=build_model(
                choice, http=self._http, redactor=self._redactor, counter=self._counter
            ),
            context_size=facts(choice.model).context_size,
            max_tokens=agent.max_tokens,
            temperature=agent.temperature,
            fallbacks=tuple((other.provider, other.model) for other in others),
        )
