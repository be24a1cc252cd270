"""What outlives the process: conversations, runs, journals, budgets, on SQLite or PostgreSQL."""

from __future__ import annotations

from dodona.store.budgets import NANOS, Budget, Hold, Line, Unit, reserve, settle
from dodona.store.conversations import HEAD
from dodona.store.journal import RunJournal
from dodona.store.location import Location, locate
from dodona.store.opening import Condition, Durability, look, migrate
from dodona.store.records import TokenRecord, record
from dodona.store.store import Store

__all__ = [
    "HEAD",
    "NANOS",
    "Budget",
    "Condition",
    "Durability",
    "Hold",
    "Line",
    "Location",
    "RunJournal",
    "Store",
    "TokenRecord",
    "Unit",
    "locate",
    "look",
    "migrate",
    "record",
    "reserve",
    "settle",
]
