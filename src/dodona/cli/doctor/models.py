"""Models: is one chosen, and does its provider answer? Nothing is asked that is billed."""

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
from dodona.core.errors import ConfigError
from dodona.models.providers import PROVIDERS
from dodona.models.token_counter import OfflineTokenCounter
from dodona.net.http import HttpPool
from dodona.net.redactor import Redactor

TIMEOUT_SECONDS: Final = 5.0  # seconds
_MAX_SKEW_SECONDS: Final = 120.0  # seconds by which two clocks may differ


async def run_checks(
    config: Config, credentials: Credentials, redactor: Redactor
) -> AsyncIterator[Finding]:
    async with HttpPool() as http:
        chooser = ModelSelector(config, credentials, http=http, targets=default_targets(os.environ))
        for agent in ("", *config.settings.agents):
            name = f"agents.{agent}" if agent else "agent"
            try:
                choice = await chooser.choose(agent)
                await asyncio.to_thread(
                    build_model, choice, http=http, redactor=redactor, counter=OfflineTokenCounter()
                )
            except ConfigError as error:
                yield wrong(name, error.message, error.hint)
                continue
            for link in choice.chain():
                async for finding in check_reachable(name, link, http):
                    yield finding


async def check_reachable(name: str, choice: ModelChoice, http: HttpPool) -> AsyncIterator[Finding]:
    if choice.provider not in PROVIDERS:
        yield ok(name, f"{choice.provider}, which needs nobody")
        return
    said = f"{choice.provider}, {choice.model}"
    try:
        async with (
            asyncio.timeout(TIMEOUT_SECONDS),
            http.session.get(
                _models_url(choice), headers=_headers(choice), allow_redirects=False
            ) as response,
        ):
            status, date = response.status, response.headers.get("Date", "")
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        why = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
        yield wrong(name, f"{said} cannot be reached: {why}.", "Look at the network.")
        return
    if status in (401, 403):
        yield wrong(name, f"{said} refuses the key ({status}).", "Set another key.")
    elif status >= 500:
        yield warning(name, f"{said} answers {status}.", "Try again later.")
    else:
        yield ok(name, f"{said} answers")
    if (skew := _clock_skew(date)) > _MAX_SKEW_SECONDS:
        yield warning("clock", f"it differs from {choice.provider}'s by {skew:,.0f} s.", "Set it.")


def _models_url(choice: ModelChoice) -> str:
    """Where its models are listed, which costs nothing."""
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
