"""Notifications: events for handlers, and notices for agents and users."""

from __future__ import annotations

from dodona.notify.bus import ALL_TYPES, EVENTS_LOST, Bus, Subscription
from dodona.notify.inbox import Inbox
from dodona.notify.registry import BUILTIN_SUBSCRIBERS, SubscriberRegistry

__all__ = [
    "ALL_TYPES",
    "BUILTIN_SUBSCRIBERS",
    "EVENTS_LOST",
    "Bus",
    "Inbox",
    "SubscriberRegistry",
    "Subscription",
]
