"""Language models behind one interface: `connect` to a provider's model, then stream."""

from __future__ import annotations

from dodona.models.extractive.model import ExtractiveModel
from dodona.models.fallback import FallbackModel
from dodona.models.provider import Provider
from dodona.models.providers import PROVIDERS, connect
from dodona.models.scripted.answers import BrokenAnswer
from dodona.models.scripted.model import ScriptedModel
from dodona.models.text_calls.model import TextCallModel
from dodona.models.token_counter import OfflineTokenCounter, TokenEstimate
from dodona.models.wire import Timeouts

__all__ = [
    "PROVIDERS",
    "BrokenAnswer",
    "ExtractiveModel",
    "FallbackModel",
    "OfflineTokenCounter",
    "Provider",
    "ScriptedModel",
    "TextCallModel",
    "Timeouts",
    "TokenEstimate",
    "connect",
]
