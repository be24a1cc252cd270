"""The models of a config, for each of its agents; each is made once, when it is first asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dodona.app.config.settings import AgentSection, Settings
from dodona.app.models.factory import build_model
from dodona.app.models.selection import ModelChoice, ModelSelector
from dodona.core.errors import ConfigError, NotFound
from dodona.core.ports.model import ChosenModel, TokenCounter
from dodona.models.catalogue.catalogue import model_facts
from dodona.net.http import HttpPool
from dodona.net.redactor import Redactor

MAX_NAMED_MODELS: Final = 64  # names come with requests


@dataclass(frozen=True, slots=True)
class AgentModels:
    """One agent's: the model that was chosen for it, and those that somebody named since."""

    agent: AgentSection
    default: ChosenModel
    named: dict[str, ChosenModel] = field(default_factory=dict[str, ChosenModel])


class ConfiguredModels:
    """A `Models`. `choices` are those of the agents, by name; the empty name is [agent]."""

    def __init__(self, *, http: HttpPool, redactor: Redactor, counter: TokenCounter) -> None:
        self._http = http
        self._redactor = redactor
        self._counter = counter
        self._selector: ModelSelector | None = None
        self._default = ""
        self._agents: Mapping[str, AgentModels] = {}

    def build(
        self, settings: Settings, choices: Mapping[str, ModelChoice]
    ) -> dict[str, AgentModels]:
        """What was chosen for each agent, to be taken. It blocks, and loads vocabularies."""
        agents: Mapping[str, AgentSection] = {"": settings.agent, **settings.agents}
        return {
            name: AgentModels(agents[name], self._build_chosen(choice, agents[name]))
            for name, choice in choices.items()
        }

    def apply(
        self, built: Mapping[str, AgentModels], selector: ModelSelector, *, default: str
    ) -> None:
        """Use these from now on; `default` is the name of [agent]."""
        self._agents, self._selector, self._default = built, selector, default

    async def choose(self, name: str = "", *, agent: str = "") -> ChosenModel:
        whose = "" if agent == self._default else agent
        of = self._agents.get(whose)
        if of is None:
            raise NotFound(f"there is no agent {agent!r:.80}.")
        if not name or name == of.default.model.name:
            return of.default
        if name not in of.named:
            if len(of.named) >= MAX_NAMED_MODELS:
                of.named.clear()
            of.named[name] = await self._choose_named(name, whose, of)
        return of.named[name]

    async def _choose_named(self, name: str, agent_name: str, models: AgentModels) -> ChosenModel:
        assert self._selector is not None
        try:
            choice = await self._selector.choose_model(name, agent_name=agent_name)
            return await asyncio.to_thread(self._build_chosen, choice, models.agent)
        except ConfigError as error:
            # Whoever asked must act, not the operator.
            raise NotFound(
                f"model {name!r:.80} cannot be used: {error.message}", hint=error.hint
            ) from error

    def _build_chosen(self, choice: ModelChoice, agent: AgentSection) -> ChosenModel:
        chain = tuple(choice.chain())
        for link in chain:
            self._counter.count("warm", link.model)  # else a loop stands still for it one day
        others = chain[1:]
        return ChosenModel(
            model=build_model(
                choice, http=self._http, redactor=self._redactor, counter=self._counter
            ),
            context_size=model_facts(choice.model).context_size,
            max_tokens=agent.max_tokens,
            temperature=agent.temperature,
            fallbacks=tuple((other.provider, other.model) for other in others),
        )
