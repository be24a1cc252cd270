"""Builds models, spending ceilings and the price list from settings."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from dodona.app.config.settings import BudgetSection, Settings
from dodona.app.models.selection import ModelChoice
from dodona.core.ports.model import Model, TokenCounter
from dodona.metering import Ceiling, Ceilings
from dodona.metering.prices import Price, Prices
from dodona.models.counted import CountedModel
from dodona.models.extractive.model import ExtractiveModel
from dodona.models.fallback import FallbackModel
from dodona.models.providers import connect
from dodona.models.scripted.model import ScriptedModel
from dodona.models.text_calls.model import TextCallModel
from dodona.net.http import HttpPool
from dodona.net.redactor import Redactor


def build_model(
    choice: ModelChoice, *, http: HttpPool, redactor: Redactor, counter: TokenCounter
) -> Model:
    """Build one model for the whole fallback chain, with retries and parsing of text tool calls.

    Sends no request. Reads the file of a scripted model.
    """
    return FallbackModel([_build_single(link, http, redactor, counter) for link in choice.chain()])


def _build_single(
    choice: ModelChoice, http: HttpPool, redactor: Redactor, counter: TokenCounter
) -> Model:
    if choice.provider == "extractive":
        return ExtractiveModel()
    if choice.provider == "scripted":
        return TextCallModel(ScriptedModel.from_file(Path(choice.model)))
    model = connect(
        choice.provider,
        choice.model,
        http=http,
        redactor=redactor,
        api_key=choice.key.reveal() if choice.key else "",
        base_url=choice.base_url,
        timeouts=choice.timeouts,
    )
    return TextCallModel(CountedModel(model, counter))


def ceilings(settings: Settings) -> Ceilings:
    """Return the spending ceilings of the settings."""

    def ceiling(budget: BudgetSection) -> Ceiling:
        return Ceiling(budget.tokens, None if budget.usd is None else Decimal(str(budget.usd)))

    return Ceilings(**{name: ceiling(budget) for name, budget in settings.budgets})


def price_list(settings: Settings) -> Prices:
    """Return the price list. Prices in the config override the built-in ones."""
    return Prices(
        {
            model: Price(**{k: Decimal(str(v)) for k, v in price if v is not None})
            for model, price in settings.prices.items()
        }
    )
