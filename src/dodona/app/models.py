"""The models of a config, each made once, when somebody first asks for it."""

from __future__ import annotations

import asyncio
from typing import Final

from dodona.app.building import build
from dodona.app.choice import Choice, Chooser
from dodona.app.settings import Agent
from dodona.core.errors import ConfigError, NotFound
from dodona.core.model import ChosenModel, Counter
from dodona.models.catalogue import facts
from dodona.net.http import Http
from dodona.net.redactor import Redactor

MOST_MODELS: Final = 64  # names come with requests


class ConfiguredModels:
    """A `Models`. The empty name is the configured model, chosen at start."""

    def __init__(
        self,
        chooser: Chooser,
        usual: Choice,
        *,
        agent: Agent,
        http: Http,
        redactor: Redactor,
        counter: Counter,
    ) -> None:
        self._chooser = chooser
        self._agent = agent
        self._http = http
        self._redactor = redactor
        self._counter = counter
        self._usual = self._made(usual)
        self._named: dict[str, ChosenModel] = {}

    async def choose(self, name: str = "") -> ChosenModel:
        if not name or name == self._usual.model.name:
            return self._usual
        if name not in self._named:
            if len(self._named) >= MOST_MODELS:
                self._named.clear()
            self._named[name] = await self._found(name)
        return self._named[name]

    async def _found(self, name: str) -> ChosenModel:
        try:
            choice = await self._chooser.choose_model(name)
            return await asyncio.to_thread(self._made, choice)
        except ConfigError as error:
            # Whoever asked must act, not the operator.
            raise NotFound(
                f"model {name!r:.80} cannot be used: {error.message}", hint=error.hint
            ) from error

    def _made(self, choice: Choice) -> ChosenModel:
        others = tuple(choice.chain())[1:]
        return ChosenModel(
            model=build(choice, http=self._http, redactor=self._redactor, counter=self._counter),
            context_size=facts(choice.model).context_size,
            max_tokens=self._agent.max_tokens,
            temperature=self._agent.temperature,
            fallbacks=tuple((other.provider, other.model) for other in others),
        )
