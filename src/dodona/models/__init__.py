"""Language models behind one port: `connect` to a provider's, and stream."""

from __future__ import annotations

from dodona.models.counter import Estimate, OfflineTokenCounter
from dodona.models.extractive import ExtractiveModel
from dodona.models.fallback import Fallback
from dodona.models.prices import Price, Prices
from dodona.models.provider import Provider
from dodona.models.providers import PROVIDERS, connect
from dodona.models.scripted import ScriptedModel
from dodona.models.scripted_answers import Broken
from dodona.models.textcalls import TextCalls
from dodona.models.wire import Timeouts

__all__ = [
    "PROVIDERS",
    "Broken",
    "Estimate",
    "ExtractiveModel",
    "Fallback",
    "OfflineTokenCounter",
    "Price",
    "Prices",
    "Provider",
    "ScriptedModel",
    "TextCalls",
    "Timeouts",
    "connect",
]
