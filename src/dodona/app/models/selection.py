"""Selects the model of an agent, and explains the choice.

Without a provider in the config, Dodona uses the first provider, in the order of the provider
table, with a key in the environment, then the first with a credentials file, then a local model
server, then `extractive`, which needs no server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import urlsplit

from dodona.app.config.config import Config
from dodona.app.config.settings import AgentSection
from dodona.app.models.credentials import Credentials, Secret
from dodona.app.models.probe import PROBE_TIMEOUT_SECONDS, ProbeTarget, probe
from dodona.core.errors import ConfigError, NotFound
from dodona.core.ports.model import ModelProvider
from dodona.documents import KeyPath, dotted_key
from dodona.models.providers import PROVIDERS, THINKING_SUFFIX
from dodona.models.wire import Timeouts
from dodona.net.http import HttpPool

_SINGLE_MODELS: Final = ("extractive", "scripted")  # providers with one model


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A provider and its model. `reason` and `rejected` are sentences for users."""

    provider: str
    model: str
    reason: str
    base_url: str = ""  # if not the provider's default
    key: Secret | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)
    rejected: tuple[str, ...] = ()
    fallback: ModelChoice | None = None

    def chain(self) -> Iterator[ModelChoice]:
        """Yield this choice, then its fallbacks."""
        yield self
        if self.fallback:
            yield from self.fallback.chain()


class ModelSelector:
    """Chooses models for the agents of a config.

    Reads files and probes local servers, but contacts no remote provider.
    """

    def __init__(
        self,
        config: Config,
        credentials: Credentials,
        *,
        http: HttpPool,
        targets: Sequence[ProbeTarget],
        extensions: Mapping[str, ModelProvider] | None = None,
        timeout: float = PROBE_TIMEOUT_SECONDS,
    ) -> None:
        self._config = config
        self._credentials = credentials
        self._http = http
        self._targets = targets
        self._extensions = extensions or {}  # the providers that they declare
        self._timeout = timeout

    async def choose(self, name: str = "") -> ModelChoice:
        """Choose the model of the agent with this name, or of the section [agent]."""
        return await self._choose_for(*self._agent(name))

    async def choose_model(self, name: str, *, agent_name: str = "") -> ModelChoice:
        """Choose a model by name: `provider/model`, if that provider is configured.

        Otherwise the agent's provider gets the whole name: OpenRouter, for example, has a model
        `deepseek/deepseek-chat`.
        """
        if name == "extractive":
            return ModelChoice(name, name, "the request names it")
        default = await self.choose(agent_name)
        if choice := await self._choose_of_provider(name, default):
            return replace(choice, reason="the request names it", fallback=default.fallback)
        if default.provider in _SINGLE_MODELS and name != default.model:
            raise NotFound(
                f"there is no model {name!r:.80}: {default.provider} has no other models.",
                hint="Configure a provider, or use provider/model.",
            )
        return replace(default, model=name, reason="the request names it")

    async def choose_override(self, name: str, *, agent_name: str = "") -> ModelChoice | None:
        """Choose the model of a subagent, `vendor/model`, with the agent's models as its fallbacks.

        None unless the agent itself uses the vendor or OpenRouter: texts of an agent go only to
        providers that the agent uses, whatever keys there are on this machine.
        """
        default = await self.choose(agent_name)
        vendor, _, model = name.partition("/")
        names = {vendor: model, "openrouter": name}
        for link in default.chain():
            if link.provider in names:
                model, reason = names[link.provider], "the subagent names it"
                return replace(link, model=model, reason=reason, fallback=default)
        return None

    async def _choose_of_provider(self, name: str, default: ModelChoice) -> ModelChoice | None:
        """Choose the model `provider/model`; None if the provider is not configured.

        It is configured if an extension declares it, if a section of the config names it, if there
        is a key for it, or if it is Ollama and runs.
        """
        provider, _, model = name.partition("/")
        if provider in self._extensions and model:
            return await self._choose_configured(AgentSection(model=model), provider, ("agent",))
        if provider not in PROVIDERS or not model:
            return None
        for link in default.chain():
            if link.provider == provider:
                model = _own_name(provider, name, link.base_url)
                return replace(link, model=model)
        section, path = AgentSection(provider=provider), ("agent",)
        if found := next((s for s in self._sections() if s[0].provider == provider), None):
            section, path = found
        elif not await self._is_usable(provider):
            return None
        model = _own_name(provider, name, section.base_url)
        section = section.model_copy(update={"model": model})
        choice = await self._choose_configured(section, provider, path)
        return replace(choice, timeouts=section.timeouts)

    def _sections(self) -> Iterator[tuple[AgentSection, KeyPath]]:
        """Yield the sections of all agents and of their fallbacks."""
        settings = self._config.settings
        for name in ("", *settings.agents):
            section, path = self._agent(name)
            yield section, path
            while section.fallback:
                section, path = section.fallback, (*path, "fallback")
                yield section, path

    async def _is_usable(self, provider: str) -> bool:
        if PROVIDERS[provider].key_env:
            return await asyncio.to_thread(self._has_key, provider)
        targets = [each for each in self._targets if each.provider == provider == "ollama"]
        results = await probe(targets, http=self._http, timeout_seconds=self._timeout)
        return any(result.models for result in results)

    def _has_key(self, provider: str) -> bool:
        try:
            key = self._credentials.from_environment(provider)
        except ConfigError:
            key = None  # the variable may be meant for another program
        return bool(key or self._credentials.from_file(provider))

    def _agent(self, name: str) -> tuple[AgentSection, KeyPath]:
        settings = self._config.settings
        return (settings.agents[name], ("agents", name)) if name else (settings.agent, ("agent",))

    async def _choose_for(self, agent: AgentSection, path: KeyPath) -> ModelChoice:
        if agent.provider:
            choice = await self._choose_configured(agent, agent.provider, path)
        else:
            choice = await self._choose_automatically(agent)
        choice = replace(choice, timeouts=agent.timeouts)
        if not agent.fallback:
            return choice
        fallback = await self._choose_for(agent.fallback, (*path, "fallback"))
        return replace(choice, fallback=fallback)

    async def _choose_configured(
        self, agent: AgentSection, provider: str, path: KeyPath
    ) -> ModelChoice:
        reason = f"it is set in {self._config.origins.of((*path, 'provider'))}"
        if provider == "extractive":
            return ModelChoice(provider, provider, reason)
        if provider == "scripted":
            script = self._config.resolve(agent.model or "", (*path, "model"))
            return ModelChoice(provider, str(script), reason)
        if provider in self._extensions:
            key = agent.api_key and self._credentials.resolve(agent.api_key, (*path, "api_key"))
            model = agent.model or self._extensions[provider].default_model or provider
            return ModelChoice(provider, model, reason, agent.base_url or "", key or None)
        key = await asyncio.to_thread(self._find_key, agent, provider, path)
        base_url = agent.base_url or self._default_url(provider)
        if provider == "ollama" and not urlsplit(base_url).path:
            base_url = f"{base_url}/v1"
        model = _own_name(provider, agent.model or PROVIDERS[provider].default_model, base_url)
        if not model:
            model = await self._first_model(base_url, path)
        return ModelChoice(provider, model, reason, base_url, key)

    def _default_url(self, provider: str) -> str:
        """Return the local URL of Ollama; for other providers "", the table's default."""
        return next((each.base_url for each in self._targets if each.provider == provider), "")

    def _find_key(self, agent: AgentSection, provider: str, path: KeyPath) -> Secret | None:
        if agent.api_key:
            return self._credentials.resolve(agent.api_key, (*path, "api_key"))
        if agent.base_url:
            # Send a key to a custom URL only if the config names the key. Otherwise a config
            # with just a URL could collect the keys of this machine.
            return None
        key = self._credentials.of_provider(provider)
        if key is None and PROVIDERS[provider].needs_key:
            file = self._credentials.file_of(provider)
            raise ConfigError(
                f"there is no API key for {provider}.",
                where=self._config.origins.of((*path, "provider")),
                hint=f"Set {PROVIDERS[provider].key_env[0]}, or write the key to {file} "
                "(chmod 600).",
            )
        return key

    async def _first_model(self, base_url: str, path: KeyPath) -> str:
        """Return the first model of the server, for a provider without a default model."""
        target = ProbeTarget("the server", "openai-compatible", base_url)
        (result,) = await probe([target], http=self._http, timeout_seconds=self._timeout)
        if not result.models:
            raise ConfigError(
                f"{dotted_key((*path, 'model'))} is not set, and no default was found: {result}.",
                where=self._config.origins.of((*path, "provider")),
                hint="Set a model, or start the server.",
            )
        return result.models[0]

    async def _choose_automatically(self, agent: AgentSection) -> ModelChoice:
        rejected: list[str] = []
        choice = None
        if agent.model:
            # A model without a provider may be one on this machine.
            choice = await self._choose_local(agent.model, [])
        choice = choice or await asyncio.to_thread(self._choose_by_key, agent, rejected)
        choice = choice or await self._choose_local(agent.model, rejected)
        return replace(choice or _extractive_choice(agent.model), rejected=tuple(rejected))

    def _choose_by_key(self, agent: AgentSection, rejected: list[str]) -> ModelChoice | None:
        """Choose the provider of the first key. All variables come before all files."""
        providers = [provider for provider in PROVIDERS.values() if provider.key_env]
        named = (agent.model or "").partition("/")[0]
        providers.sort(key=lambda provider: provider.name != named)
        for provider in providers:
            try:
                key = self._credentials.from_environment(provider.name)
            except ConfigError as error:
                # Not fatal: the variable may be meant for another program.
                rejected.append(str(error))
                continue
            if key:
                model = _own_name(provider.name, agent.model or provider.default_model, None)
                return ModelChoice(provider.name, model, f"{key.source} is set", key=key)
            rejected.append(f"{' or '.join(provider.key_env)} is not set")
        for provider in providers:
            if key := self._credentials.from_file(provider.name):
                model = _own_name(provider.name, agent.model or provider.default_model, None)
                return ModelChoice(provider.name, model, f"there is a key in {key.source}", key=key)
        rejected.append(f"there is no API key in {self._credentials.folder}")
        return None

    async def _choose_local(self, model: str | None, rejected: list[str]) -> ModelChoice | None:
        """Choose the first local server that has the model, or any model if none is named."""
        results = await probe(self._targets, http=self._http, timeout_seconds=self._timeout)
        rejected += [str(result) for result in results if result.error]
        for result in results:
            target, models = result.target, result.models
            if models and (model is None or model.removesuffix(THINKING_SUFFIX) in models):
                return ModelChoice(
                    target.provider, model or models[0], str(result), target.base_url
                )
        return None


def _own_name(provider: str, name: str, base_url: str | None) -> str:
    """Return the provider's own name for `provider/model`, and any other name as it is.

    OpenRouter's own models keep its name (`openrouter/auto`). So do those behind a custom URL of a
    provider with keys: it may be a proxy for several providers, which have such names.
    """
    own = name.removeprefix(f"{provider}/")
    if provider == "openrouter":
        return own if "/" in own else name
    return name if base_url and PROVIDERS[provider].needs_key else own


def _extractive_choice(model: str | None) -> ModelChoice:
    suffix = f" with {model}" if model else ""
    reason = f"there is no API key and no local model server{suffix}"
    return ModelChoice("extractive", "extractive", reason)
