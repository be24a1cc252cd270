"""Which model answers, and why.

The provider that the config names; else the first provider that has a key in the environment, then
in a credential file, in the order of the table of providers; else a server on this machine; else
`extractive`, which needs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from dodona.app.config.config import Config
from dodona.app.config.settings import AgentSection
from dodona.app.config.shape import dotted_key
from dodona.app.models.credentials import Credentials, Secret
from dodona.app.models.probe import PROBE_TIMEOUT_SECONDS, ProbeTarget, probe
from dodona.core.errors import ConfigError, NotFound
from dodona.documents.toml_lines import KeyPath
from dodona.models.providers import PROVIDERS, THINKING_SUFFIX
from dodona.models.wire import Timeouts
from dodona.net.http import HttpPool


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A provider and its model; `reason` and `tried` are sentences for people."""

    provider: str
    model: str
    reason: str
    base_url: str = ""  # where it is not the provider's own
    key: Secret | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)
    rejected: tuple[str, ...] = ()
    fallback: ModelChoice | None = None

    def chain(self) -> Iterator[ModelChoice]:
        """This one, then what answers when it cannot."""
        yield self
        if self.fallback:
            yield from self.fallback.chain()


class ModelSelector:
    """Chooses for the agents of a config. It reads files and asks servers, but no provider."""

    def __init__(
        self,
        config: Config,
        credentials: Credentials,
        *,
        http: HttpPool,
        targets: Sequence[ProbeTarget],
        timeout: float = PROBE_TIMEOUT_SECONDS,
    ) -> None:
        self._config = config
        self._credentials = credentials
        self._http = http
        self._targets = targets
        self._timeout = timeout

    async def choose(self, name: str = "") -> ModelChoice:
        """For the agent of this name, or the one of section [agent]."""
        settings = self._config.settings
        if name:
            return await self._choose_for(settings.agents[name], ("agents", name))
        return await self._choose_for(settings.agent, ("agent",))

    async def choose_model(self, name: str, *, agent_name: str = "") -> ModelChoice:
        """For a model that somebody names: another of the agent's provider, or `provider/model`."""
        settings = self._config.settings
        agent = settings.agents[agent_name] if agent_name else settings.agent
        path = ("agents", agent_name) if agent_name else ("agent",)
        provider, _, model = name.partition("/")
        if name == "extractive":
            return ModelChoice(name, name, "it was asked for")
        if model and provider in PROVIDERS and provider != agent.provider:
            other = {"provider": provider, "model": model, "base_url": None, "api_key": None}
            return await self._choose_for(agent.model_copy(update=other), path)
        usual = await self.choose(agent_name)
        if usual.provider not in PROVIDERS and name != usual.model:
            raise NotFound(
                f"there is no model {name!r:.80}: {usual.provider} has no others.",
                hint="Configure a provider, or write provider/model.",
            )
        return replace(usual, model=name, reason="it was asked for")

    async def _choose_for(self, agent: AgentSection, path: KeyPath) -> ModelChoice:
        if agent.provider:
            choice = await self._choose_configured(agent, agent.provider, path)
        else:
            choice = await self._choose_automatically(agent)
        choice = replace(choice, timeouts=Timeouts(**agent.timeouts.model_dump()))
        if not agent.fallback:
            return choice
        fallback = await self._choose_for(agent.fallback, (*path, "fallback"))
        return replace(choice, fallback=fallback)

    async def _choose_configured(
        self, agent: AgentSection, provider: str, path: KeyPath
    ) -> ModelChoice:
        reason = f"{self._config.origins.of((*path, 'provider'))} says so"
        if provider == "extractive":
            return ModelChoice(provider, provider, reason)
        if provider == "scripted":
            script = self._config.resolve(agent.model or "", (*path, "model"))
            return ModelChoice(provider, str(script), reason)
        key = await asyncio.to_thread(self._find_key, agent, provider, path)
        base_url = agent.base_url or self._default_url(provider)
        if provider == "ollama" and not urlsplit(base_url).path:
            base_url = f"{base_url}/v1"
        model = agent.model or PROVIDERS[provider].default_model
        if not model:
            model = await self._first_model(base_url, path)
        return ModelChoice(provider, model, reason, base_url, key)

    def _default_url(self, provider: str) -> str:
        """Where Ollama is on this machine; of others their table knows."""
        return next((spot.base_url for spot in self._targets if spot.provider == provider), "")

    def _find_key(self, agent: AgentSection, provider: str, path: KeyPath) -> Secret | None:
        if agent.api_key:
            return self._credentials.resolve(agent.api_key, (*path, "api_key"))
        if agent.base_url:
            # To an address of somebody's own a key goes only when the config names it. Else a
            # config with nothing but an address in it would collect the keys of this machine.
            return None
        key = self._credentials.of_provider(provider)
        if key is None and PROVIDERS[provider].needs_key:
            file = self._credentials.file_of(provider)
            raise ConfigError(
                f"there is no key for {provider}.",
                where=self._config.origins.of((*path, "provider")),
                hint=f"Set {PROVIDERS[provider].key_env[0]}, or write it to {file} (chmod 600).",
            )
        return key

    async def _first_model(self, base_url: str, path: KeyPath) -> str:
        """What the server has, where neither the config nor the provider names a model."""
        spot = ProbeTarget("the server", "openai-compatible", base_url)
        (seen,) = await probe([spot], http=self._http, timeout_seconds=self._timeout)
        if not seen.models:
            raise ConfigError(
                f"{dotted_key((*path, 'model'))} is missing, and there is none to take: {seen}.",
                where=self._config.origins.of((*path, "provider")),
                hint="Name a model, or start the server.",
            )
        return seen.models[0]

    async def _choose_automatically(self, agent: AgentSection) -> ModelChoice:
        tried: list[str] = []
        choice = None
        if agent.model:
            # Whoever names a model and no provider may mean one of this machine.
            choice = await self._choose_local(agent.model, [])
        choice = choice or await asyncio.to_thread(self._choose_by_key, agent, tried)
        choice = choice or await self._choose_local(agent.model, tried)
        return replace(choice or _extractive_choice(agent.model), rejected=tuple(tried))

    def _choose_by_key(self, agent: AgentSection, rejected: list[str]) -> ModelChoice | None:
        """By the first key there is: all variables come before all files."""
        keyed = [provider for provider in PROVIDERS.values() if provider.key_env]
        for provider in keyed:
            try:
                key = self._credentials.from_environment(provider.name)
            except ConfigError as error:
                rejected.append(str(error))  # not worth an end: whoever set it may not mean us
                continue
            if key:
                model = agent.model or provider.default_model
                return ModelChoice(provider.name, model, f"{key.source} is set", key=key)
            rejected.append(f"{' or '.join(provider.key_env)} is not set")
        for provider in keyed:
            if key := self._credentials.from_file(provider.name):
                model = agent.model or provider.default_model
                return ModelChoice(provider.name, model, f"there is a key in {key.source}", key=key)
        rejected.append(f"there is no key in {self._credentials.folder}")
        return None

    async def _choose_local(self, model: str | None, rejected: list[str]) -> ModelChoice | None:
        """By the first server on this machine that has the model, or any."""
        seen = await probe(self._targets, http=self._http, timeout_seconds=self._timeout)
        rejected += [str(sighting) for sighting in seen if sighting.error]
        for sighting in seen:
            spot, models = sighting.target, sighting.models
            if models and (model is None or model.removesuffix(THINKING_SUFFIX) in models):
                return ModelChoice(spot.provider, model or models[0], str(sighting), spot.base_url)
        return None


def _extractive_choice(model: str | None) -> ModelChoice:
    has = f" that has {model}" if model else ""
    reason = f"there is no key, and no server on this machine{has}"
    return ModelChoice("extractive", "extractive", reason)
