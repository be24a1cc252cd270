"""What happens, told to whoever listens: events to handlers, notices to agents and users."""

from __future__ import annotations

from dodona.notify.buffer import EVENTS_LOST
from dodona.notify.bus import EVERYTHING, Bus, Subscription
from dodona.notify.inbox import Inbox
from dodona.notify.registry import SHIPPED, SubscriberRegistry

__all__ = [
    "EVENTS_LOST",
    "EVERYTHING",
    "SHIPPED",
    "Bus",
    "Inbox",
    "SubscriberRegistry",
    "Subscription",
]
