"""Checks of the chosen models and their providers. No billed request is sent."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from email.utils import parsedate_to_datetime
from time import time
from typing import Final

import aiohttp

from dodona.app.config.config import Config
from dodona.app.models.credentials import Credentials
from dodona.app.models.factory import build_model
from dodona.app.models.probe import default_targets
from dodona.app.models.selection import ModelChoice, ModelSelector
from dodona.cli.doctor.finding import Finding, ok, warning, wrong
from dodona.cli.terminal.output import REDACTOR
from dodona.core.errors import ConfigError
from dodona.models.providers import PROVIDERS
from dodona.models.token_counter import OfflineTokenCounter
from dodona.net.http import HttpPool

TIMEOUT_SECONDS: Final = 5.0
_MAX_SKEW_SECONDS: Final = 120.0  # between our clock and the provider's


async def run_checks(config: Config, credentials: Credentials) -> AsyncIterator[Finding]:
    """Check the model of each agent, and its fallbacks."""
    async with HttpPool() as http:
        selector = ModelSelector(
            config, credentials, http=http, targets=default_targets(os.environ)
        )
        for agent in ("", *config.settings.agents):
            name = f"agents.{agent}" if agent else "agent"
            try:
                choice = await selector.choose(agent)
                await asyncio.to_thread(
                    build_model, choice, http=http, redactor=REDACTOR, counter=OfflineTokenCounter()
                )
            except ConfigError as error:
                yield wrong(name, error.message, error.hint)
                continue
            for each in choice.chain():
                async for finding in check_reachable(name, each, http):
                    yield finding


async def check_reachable(name: str, choice: ModelChoice, http: HttpPool) -> AsyncIterator[Finding]:
    """Check that a provider responds and accepts the key, and compare its clock with ours."""
    if choice.provider not in PROVIDERS:
        yield ok(name, f"{choice.provider}, which needs no server")
        return
    label = f"{choice.provider}, {choice.model}"
    try:
        async with (
            asyncio.timeout(TIMEOUT_SECONDS),
            http.session.get(
                _models_url(choice), headers=_headers(choice), allow_redirects=False
            ) as response,
        ):
            status, date = response.status, response.headers.get("Date", "")
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        reason = "timeout" if isinstance(error, TimeoutError) else type(error).__name__
        yield wrong(name, f"{label} cannot be reached: {reason}.", "Check the network.")
        return
    if status in (401, 403):
        yield wrong(name, f"{label} rejects the key ({status}).", "Set another key.")
    elif status >= 500:
        yield warning(name, f"{label} responds with {status}.", "Try again later.")
    else:
        yield ok(name, f"{label} responds")
    if (skew := _clock_skew(date)) > _MAX_SKEW_SECONDS:
        message = f"differs from the clock of {choice.provider} by {skew:,.0f} s."
        yield warning("clock", message, "Set the clock.")


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


def _clock_skew(date: str) -> float:
    try:
        return abs(parsedate_to_datetime(date).timestamp() - time())
    except ValueError:
        return 0.0
