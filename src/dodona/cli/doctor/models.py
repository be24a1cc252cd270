"""Checks of the chosen models: each is sent one small request, unless `--offline` is given."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from email.utils import parsedate_to_datetime
from functools import partial
from time import time
from typing import Final

import aiohttp

from dodona.app.config.config import Config
from dodona.app.config.settings import AgentSection
from dodona.app.models.credentials import Credentials
from dodona.app.models.factory import load_models, price_list
from dodona.app.models.selection import ModelChoice
from dodona.app.models.trial import try_model
from dodona.cli.doctor.finding import Finding, ok, warning, wrong
from dodona.cli.terminal.output import REDACTOR
from dodona.core.errors import ConfigError, DodonaError, ProviderError, ProviderErrorKind
from dodona.metering.prices import Prices
from dodona.models.providers import PROVIDERS
from dodona.net.http import HttpPool

CLOCK_TIMEOUT_SECONDS: Final = 5.0
_TEMPORARY_ERRORS: Final = frozenset({ProviderErrorKind.RATE_LIMITED, ProviderErrorKind.SERVER})
_MAX_SKEW_SECONDS: Final = 120.0  # between our clock and the provider's


async def run_checks(
    config: Config, credentials: Credentials, *, is_offline: bool
) -> AsyncIterator[Finding]:
    """Check the model of each agent, and its fallbacks."""
    settings = config.settings
    async with HttpPool() as http:
        checker = ModelChecker(http, price_list(settings), is_offline=is_offline)
        load = partial(load_models, config, credentials, http=http, redactor=REDACTOR)
        try:
            selector, builder = await asyncio.to_thread(load)
        except DodonaError as error:
            yield wrong("extensions", str(error), "Fix the extension, or remove it.")
            return
        agents = {"agent": ("", settings.agent)}
        agents |= {f"agents.{name}": (name, each) for name, each in settings.agents.items()}
        for label, (name, agent) in agents.items():
            try:
                choice = await selector.choose(name)
                await asyncio.to_thread(builder.build, choice)
            except ConfigError as error:
                yield wrong(label, error.message, error.hint)
                continue
            for each in choice.chain():
                for finding in await checker.check(label, each, agent):
                    yield finding


class ModelChecker:
    """Sends one request to each model, also if several agents use it."""

    def __init__(self, http: HttpPool, prices: Prices, *, is_offline: bool = False) -> None:
        self._http = http
        self._prices = prices
        self._is_offline = is_offline
        self._findings: dict[tuple[object, ...], Finding] = {}

    async def check(self, label: str, choice: ModelChoice, agent: AgentSection) -> list[Finding]:
        """Return the finding about a model; another one if the provider's clock differs."""
        model = f"{choice.provider}, {choice.model}"
        if choice.provider not in PROVIDERS:
            return [ok(label, f"{choice.provider}, which needs no server")]
        if self._is_offline:
            return [ok(label, f"{model}; no request was sent")]
        key = choice.key.source if choice.key else ""
        request = (choice.provider, choice.model, choice.base_url, key, agent.temperature)
        if request in self._findings:
            return [replace(self._findings[request], name=label)]
        finding = await self._try_model(label, choice, agent)
        self._findings[request] = finding
        skew = 0.0 if finding.state == "wrong" else await _clock_skew(choice, self._http)
        if skew <= _MAX_SKEW_SECONDS:
            return [finding]
        message = f"differs from the clock of {choice.provider} by {skew:,.0f} s."
        return [finding, warning("clock", message, "Set the clock.")]

    async def _try_model(self, label: str, choice: ModelChoice, agent: AgentSection) -> Finding:
        model = f"{choice.provider}, {choice.model}"
        try:
            trial = await try_model(
                choice,
                temperature=agent.temperature,
                prices=self._prices,
                http=self._http,
                redactor=REDACTOR,
            )
        except ProviderError as error:
            if error.kind in _TEMPORARY_ERRORS:
                return warning(label, f"{model}: {error.message}", "Try again later.")
            hint = (
                error.hint or "Check provider, model and base_url in the config, and the network."
            )
            return wrong(label, f"{model}: {error.message}", hint)
        return ok(label, f"{model} answered one request ({trial})")


async def _clock_skew(choice: ModelChoice, http: HttpPool) -> float:
    """Compare our clock with that of a provider, by a request that costs nothing."""
    try:
        async with (
            asyncio.timeout(CLOCK_TIMEOUT_SECONDS),
            http.session.get(
                _models_url(choice), headers=_headers(choice), allow_redirects=False
            ) as response,
        ):
            date = parsedate_to_datetime(response.headers.get("Date", ""))
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        return 0.0
    return abs(date.timestamp() - time())


def _models_url(choice: ModelChoice) -> str:
    """Return the URL that lists models, a request that costs nothing."""
    row = PROVIDERS[choice.provider]
    base = (choice.base_url or row.base_url).rstrip("/")
    return f"{base}/v1/models" if row.wire == "anthropic" else f"{base}/models"


def _headers(choice: ModelChoice) -> dict[str, str]:
    if choice.key is None:
        return {}
    if PROVIDERS[choice.provider].wire == "anthropic":
        return {"x-api-key": choice.key.reveal(), "anthropic-version": "2023-06-01"}
    return {"Authorization": f"Bearer {choice.key.reveal()}"}
