"""Budgets for model calls: the ceilings, and the meter that enforces them."""

from __future__ import annotations

from dodona.metering.ceilings import Ceiling, Ceilings
from dodona.metering.meter import Meter, count_tokens
from dodona.metering.prices import Price, Prices

__all__ = ["Ceiling", "Ceilings", "Meter", "Price", "Prices", "count_tokens"]
