"""Language models behind one port: `connect` to a provider's, and stream."""

from __future__ import annotations

from dodona.models.provider import Provider
from dodona.models.providers import PROVIDERS, connect
from dodona.models.wire import Timeouts

__all__ = [
    "PROVIDERS",
    "Provider",
    "Timeouts",
    "connect",
]
