"""Builds models, spending ceilings and the price list from settings.

The models of each configured agent are built once, on first use.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Final

from dodona.app.config.config import Config
from dodona.app.config.settings import AgentSection, BudgetSection, Settings
from dodona.app.extensions.registry import extension_providers
from dodona.app.models.credentials import Credentials
from dodona.app.models.probe import default_targets
from dodona.app.models.selection import ModelChoice, ModelSelector
from dodona.core.domain.api_tokens import ApiToken
from dodona.core.errors import ConfigError, NotFound
from dodona.core.ports.model import (
    ChosenModel,
    Model,
    ModelOptions,
    ModelProvider,
    TokenCounter,
)
from dodona.metering import Ceiling, Ceilings
from dodona.metering.prices import Price, Prices
from dodona.models.catalogue.catalogue import model_facts
from dodona.models.fallback import FallbackModel
from dodona.models.shipped import shipped_providers, with_counted_output
from dodona.models.token_counter import OfflineTokenCounter
from dodona.net.http import HttpPool
from dodona.net.redactor import Redactor

MAX_NAMED_MODELS: Final = 64  # per agent; clients choose the names, so the cache is bounded


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelBuilder:
    """Builds models of the shipped providers, and of those that extensions declare."""

    http: HttpPool
    redactor: Redactor
    counter: TokenCounter
    extensions: Mapping[str, ModelProvider] = field(default_factory=dict[str, ModelProvider])

    def build(self, choice: ModelChoice) -> Model:
        """Build one model for the whole fallback chain, with retries.

        Sends no request. Reads the file of a scripted model.
        """
        return FallbackModel([self.build_link(link) for link in choice.chain()])

    def build_link(self, choice: ModelChoice) -> Model:
        """Build one model of a fallback chain, without retries."""
        return self._find_provider(choice.provider).build(
            ModelOptions(
                model=choice.model,
                api_key=choice.key.reveal() if choice.key else "",
                base_url=choice.base_url,
                timeouts=choice.timeouts,
            )
        )

    def _find_provider(self, name: str) -> ModelProvider:
        if name in self.extensions:
            return with_counted_output(self.extensions[name], self.counter)
        shipped = shipped_providers(http=self.http, redactor=self.redactor, counter=self.counter)
        return next(each for each in shipped if each.name == name)


def load_models(
    config: Config, credentials: Credentials, *, http: HttpPool, redactor: Redactor
) -> tuple[ModelSelector, ModelBuilder]:
    """Return what selects and builds the models of a config. Blocks: it loads the extensions."""
    providers = extension_providers(config)
    selector = ModelSelector(
        config,
        credentials,
        http=http,
        targets=default_targets(os.environ),
        extensions=providers,
    )
    counter = OfflineTokenCounter()
    builder = ModelBuilder(http=http, redactor=redactor, counter=counter, extensions=providers)
    return selector, builder


def ceilings(settings: Settings) -> Ceilings:
    """Return the spending ceilings of the settings."""

    def ceiling(budget: BudgetSection) -> Ceiling:
        return Ceiling(budget.tokens, None if budget.usd is None else Decimal(str(budget.usd)))

    budgets = (each for each in settings.budgets if isinstance(each[1], BudgetSection))
    return Ceilings(**{name: ceiling(budget) for name, budget in budgets})


def price_list(settings: Settings) -> Prices:
    """Return the price list. Prices in the config override the built-in ones."""
    return Prices(
        {
            model: Price(**{k: Decimal(str(v)) for k, v in price if v is not None})
            for model, price in settings.prices.items()
        }
    )


@dataclass(frozen=True, slots=True)
class AgentModels:
    """The models of one agent: its default, those that requests named, and those of subagents."""

    agent: AgentSection
    default: ChosenModel
    named: dict[str, ChosenModel] = field(default_factory=dict[str, ChosenModel])
    overrides: dict[str, ChosenModel | None] = field(default_factory=dict[str, ChosenModel | None])


class ConfiguredModels:
    """A `Models` for the configured agents, by name; the section [agent] has the empty name."""

    def __init__(self, builder: ModelBuilder) -> None:
        self._builder = builder
        self._selector: ModelSelector | None = None
        self._default = ""
        self._agents: Mapping[str, AgentModels] = {}

    def apply(
        self,
        built: Mapping[str, AgentModels],
        selector: ModelSelector,
        builder: ModelBuilder,
        *,
        default: str,
    ) -> None:
        """Use these models from now on. `default` is the name of the agent in [agent]."""
        self._agents, self._selector, self._default = built, selector, default
        self._builder = builder

    async def choose(
        self, name: str = "", *, agent: str = "", token: ApiToken | None = None
    ) -> ChosenModel:
        chosen = await self._choose(name, agent)
        if token is None or token.limits.models is None:
            return chosen
        return _limit_to_token(chosen, token, is_named=bool(name))

    async def choose_override(
        self, name: str, *, agent: str = "", token: ApiToken | None = None
    ) -> ChosenModel | None:
        assert self._selector is not None
        agent_name, models = self._find_agent(agent)
        if name not in models.overrides:
            choice = await self._selector.choose_override(name, agent_name=agent_name)
            models.overrides[name] = (
                None
                if choice is None
                else await asyncio.to_thread(_build_chosen, self._builder, choice, models.agent)
            )
        chosen = models.overrides[name]
        if chosen is None or token is None or token.limits.models is None:
            return chosen
        return _limit_to_token(chosen, token, is_named=False)

    def _find_agent(self, agent: str) -> tuple[str, AgentModels]:
        agent_name = "" if agent == self._default else agent
        models = self._agents.get(agent_name)
        if models is None:
            raise NotFound(f"there is no agent {agent!r:.80}.")
        return agent_name, models

    async def _choose(self, name: str, agent: str) -> ChosenModel:
        agent_name, models = self._find_agent(agent)
        if not name or name == models.default.model.name:
            return models.default
        if name not in models.named:
            if len(models.named) >= MAX_NAMED_MODELS:
                models.named.clear()
            models.named[name] = await self._choose_named(name, agent_name, models)
        return models.named[name]

    async def _choose_named(self, name: str, agent_name: str, models: AgentModels) -> ChosenModel:
        assert self._selector is not None
        try:
            choice = await self._selector.choose_model(name, agent_name=agent_name)
            return await asyncio.to_thread(_build_chosen, self._builder, choice, models.agent)
        except ConfigError as error:
            # The client must act, not the operator.
            raise NotFound(
                f"model {name!r:.80} cannot be used: {error.message}", hint=error.hint
            ) from error


def build_agent_models(
    builder: ModelBuilder, settings: Settings, choices: Mapping[str, ModelChoice]
) -> dict[str, AgentModels]:
    """Build the chosen model of each agent. Blocks: it loads vocabularies."""
    agents: Mapping[str, AgentSection] = {"": settings.agent, **settings.agents}
    builder.counter.count("warm", "")  # questions are counted before their model is chosen
    return {
        name: AgentModels(agents[name], _build_chosen(builder, choice, agents[name]))
        for name, choice in choices.items()
    }


def _build_chosen(builder: ModelBuilder, choice: ModelChoice, agent: AgentSection) -> ChosenModel:
    chain = tuple(choice.chain())
    for link in chain:
        # Load the vocabulary now: later it would block the event loop.
        builder.counter.count("warm", link.model)
    others = chain[1:]
    return ChosenModel(
        model=builder.build(choice),
        context_size=model_facts(choice.model).context_size,
        max_tokens=agent.max_tokens,
        temperature=agent.temperature,
        fallbacks=tuple((other.provider, other.model) for other in others),
    )


def _limit_to_token(chosen: ChosenModel, token: ApiToken, *, is_named: bool) -> ChosenModel:
    """Return the choice without the models that a token may not use; raise if none is left.

    A model that was requested by name is not replaced by another one.
    """
    model = chosen.model
    assert isinstance(model, FallbackModel)  # as `ModelBuilder` returns it
    limited = model.limited_to(token.limits.allows_model)
    if limited is None or (is_named and limited.name != model.name):
        token.check_model(model.provider, model.name)
    assert limited is not None
    first, *others = limited.models
    return replace(
        chosen,
        model=limited,
        context_size=model_facts(first.name).context_size,
        fallbacks=tuple((other.provider, other.name) for other in others),
    )
