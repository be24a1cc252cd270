"""`dodona status`: show the model, the store and the gateway in use."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeAlias

from dodona.app.config.config import Config, load_config
from dodona.app.config.store_url import store_url
from dodona.app.models.credentials import Credentials
from dodona.app.models.factory import load_models, price_list
from dodona.app.models.selection import ModelChoice
from dodona.app.telemetry.logging import configure_logging
from dodona.cli.client.gateway import gateway_client
from dodona.cli.client.gateway_file import Announcement
from dodona.cli.options import DEFAULTS, NO_CONFIG_FILE, Options
from dodona.cli.terminal.output import REDACTOR, format_columns
from dodona.core import errors
from dodona.core.domain.budgets import NANOS_PER_USD, BudgetUnit
from dodona.core.errors import ConfigError, DodonaError, SourceLocation, StoreError
from dodona.core.ports.model import Usage
from dodona.core.version import __version__
from dodona.metering.prices import Prices
from dodona.models.catalogue import catalogue
from dodona.net.http import HttpPool
from dodona.store.db.location import parse_location
from dodona.store.db.migrate import NEWEST_REVISION
from dodona.store.db.open import inspect

MODEL_HINT = (
    "To use a language model, set a provider's key (such as ANTHROPIC_API_KEY), start Ollama with "
    "a model, or set agent.provider."
)

Facts: TypeAlias = dict[str, Any]


def status(*, options: Options = DEFAULTS) -> int:
    """Show the model, the store and the gateway in use. The exit code is 0 if all are usable."""
    config = load_config(os.environ, options.config)
    configure_logging(config.settings.log, REDACTOR)
    credentials = Credentials(config, os.environ, REDACTOR)
    store = _store_status(config, credentials)
    agents = asyncio.run(_agent_facts(config, credentials))
    gateway = asyncio.run(_gateway_status(config))
    file = config.origins.file
    report = {
        "version": __version__,
        "config": str(file) if file else None,
        "store": store,
        "agents": agents,
        "gateway": gateway,
    }
    rows = [
        ("dodona", __version__),
        ("config", str(file or NO_CONFIG_FILE)),
        ("store", _format_store(store)),
        *(row for name, facts in agents.items() for row in agent_rows(name, facts)),
        *(_gateway_rows(gateway) if gateway else ()),
    ]
    options.print_result(report, format_columns(rows))
    codes = {facts["error"]["code"] for facts in (store, *agents.values()) if "error" in facts}
    if not codes:
        return 0
    return StoreError.exit_code if codes == {StoreError.code} else ConfigError.exit_code


# -- the store -------------------------------------------------------------------------------


def _store_status(config: Config, credentials: Credentials) -> Facts:
    """Return the location, size and schema of the store, without opening it."""
    try:
        state = inspect(parse_location(store_url(config, credentials)))
    except (ConfigError, StoreError) as error:
        return errors.as_json(error)
    return {"url": str(state.location), "bytes": state.size, "schema": state.revision or None}


def _format_store(facts: Facts) -> str:
    if "error" in facts:
        return _format_error(facts)
    if facts["schema"] is None:
        return f"{facts['url']} (does not exist yet)"
    size = f"{facts['bytes']:,} bytes, " if facts["bytes"] is not None else ""
    migration = (
        ""
        if facts["schema"] == NEWEST_REVISION
        else f", will be migrated to {NEWEST_REVISION} on first use"
    )
    return f"{facts['url']} ({size}schema {facts['schema']}{migration})"


# -- the gateway -----------------------------------------------------------------------------


async def _gateway_status(config: Config) -> Facts | None:
    """Return the status of the user's gateway; None if none is running."""
    announcement = await asyncio.to_thread(Announcement.read, config.home)
    if announcement is None:
        return None
    facts: Facts = {
        "url": announcement.url,
        "pid": announcement.pid,
        "store": announcement.store,
    }
    async with gateway_client(announcement, config.home) as client:
        if not await client.is_reachable():
            return {**facts, "answers": False}
        try:
            return {**facts, "answers": True, **await client.get("/api/status")}
        except DodonaError as error:
            return {**facts, "answers": True, **errors.as_json(error)}


def _gateway_rows(facts: Facts) -> Iterator[tuple[str, str]]:
    """Format the gateway's status as table rows."""
    where = f"{facts['url']} (process {facts['pid']})"
    if not facts["answers"]:
        yield "gateway", f"{where} does not respond. See: dodona doctor"
    elif "error" in facts:
        yield "gateway", where
        yield "", _format_error(facts)
    else:
        yield "gateway", f"{where}, up for {_format_duration(facts['uptime_seconds'])}"
        lanes = f"{facts['lanes_waiting']} waiting lanes, {facts['streams']} open streams"
        yield "", f"{facts['runs']} active runs, {lanes}"
        for budget in facts["budgets"]:
            yield "", _format_budget(budget)


def _format_budget(facts: Mapping[str, Any]) -> str:
    unit = BudgetUnit(facts["unit"])
    per = NANOS_PER_USD if unit is BudgetUnit.USD else 1
    used, ceiling = (unit.format(round(facts[name] * per)) for name in ("used", "ceiling"))
    part = f" ({facts['used'] / facts['ceiling']:.0%})" if facts["ceiling"] else ""
    return f"budget {facts['scope']} {facts['period']}: {used} of {ceiling}{part}"


def _format_duration(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"


# -- models ----------------------------------------------------------------------------------


async def _agent_facts(config: Config, credentials: Credentials) -> dict[str, Facts]:
    """Return the model of each agent, or an error. The default agent is named "agent"."""
    prices = price_list(config.settings)
    agents: dict[str, Facts] = {}
    async with HttpPool() as http:
        load = partial(load_models, config, credentials, http=http, redactor=REDACTOR)
        selector, builder = await asyncio.to_thread(load)
        for name in ("", *config.settings.agents):
            try:
                choice = await selector.choose(name)
                # Build the model to find configuration errors; it is not used.
                await asyncio.to_thread(builder.build, choice)
                facts = model_facts(choice, prices)
            except ConfigError as error:
                facts = errors.as_json(error)
            agents[f"agents.{name}" if name else "agent"] = facts
    return agents


def model_facts(choice: ModelChoice, prices: Prices) -> Facts:
    """Return the facts about a chosen model and its fallbacks."""
    facts: Facts = {
        "provider": choice.provider,
        "model": choice.model,
        "reason": choice.reason,
        "base_url": choice.base_url or None,
        "key": choice.key.source if choice.key else None,
        "context_size": None,
        "price": None,
        "tried": list(choice.rejected),
        "fallback": model_facts(choice.fallback, prices) if choice.fallback else None,
    }
    if choice.provider not in ("extractive", "scripted"):
        facts["context_size"] = catalogue.model_facts(choice.model).context_size
        facts["price"] = _price_per_million(choice, prices)
    return facts


def _price_per_million(choice: ModelChoice, prices: Prices) -> Facts | None:
    """US dollars per million tokens; None if unknown."""
    # Price a thousand tokens: some models charge more for requests of a million.
    sides = {"input": Usage(input_tokens=1000), "output": Usage(output_tokens=1000)}
    now = datetime.now(UTC)
    costs = {
        side: prices.cost(usage, provider=choice.provider, model=choice.model, at=now)
        for side, usage in sides.items()
    }
    per_million = {side: float(cost * 1000) for side, cost in costs.items() if cost is not None}
    return per_million if len(per_million) == 2 else None


def agent_rows(name: str, facts: Facts) -> Iterator[tuple[str, str]]:
    """Format the facts about an agent's model as table rows."""
    if "error" in facts:
        yield name, _format_error(facts)
        return
    is_plain = facts["provider"] == facts["model"]
    yield name, facts["model"] if is_plain else f"{facts['provider']}, {facts['model']}"
    yield "", f"because {facts['reason']}"
    if facts["context_size"]:
        yield "", f"{facts['context_size']:,} tokens of context; {_format_price(facts['price'])}"
    if facts["fallback"]:
        yield from agent_rows("  fallback", facts["fallback"])
    if facts["provider"] == "extractive" and facts["tried"]:
        yield "", "No language model is used: answers quote search results. Tried:"
        yield from (("", f"  {line}") for line in facts["tried"])
        yield "", MODEL_HINT


def _format_price(price: Mapping[str, float] | None) -> str:
    if price is None:
        return "unknown price"
    if not any(price.values()):
        return "free"
    return f"${price['input']:g} in, ${price['output']:g} out per million tokens"


def _format_error(facts: Facts) -> str:
    error = facts["error"]
    location = f"{SourceLocation(**error['where'])}: " if "where" in error else ""
    return f"{location}{error['message']} {error['hint']}"
