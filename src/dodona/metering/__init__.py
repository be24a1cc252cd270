"""Budgets for model calls: the ceilings, and the meter that enforces them."""

from __future__ import annotations

from dodona.metering.ceilings import Ceiling, Ceilings
from dodona.metering.meter import Ledger, Meter, PriceList

__all__ = ["Ceiling", "Ceilings", "Ledger", "Meter", "PriceList"]
