"""What happens, told to whoever listens."""

from __future__ import annotations

from dodona.notify.bus import EVENTS_LOST, EVERYTHING, Bus, Subscription

__all__ = ["EVENTS_LOST", "EVERYTHING", "Bus", "Subscription"]
