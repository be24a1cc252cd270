"""Persistent data on SQLite or PostgreSQL: conversations, runs, journals, budgets and more."""

from __future__ import annotations

from dodona.core.domain.budgets import (
    NANOS_PER_USD,
    Budget,
    BudgetLine,
    BudgetUnit,
    Reservation,
    TokenRecord,
)
from dodona.core.domain.conversations.contexts import ContextStatus, OracleContext
from dodona.core.domain.projects import Project
from dodona.store.billing.budgets import reserve, settle
from dodona.store.billing.token_records import record
from dodona.store.conversations.conversations import HEAD
from dodona.store.db.location import StoreLocation, parse_location
from dodona.store.db.open import Durability, StoreState, inspect, migrate
from dodona.store.runs.journal import RunJournal
from dodona.store.store import Store

__all__ = [
    "HEAD",
    "NANOS_PER_USD",
    "Budget",
    "BudgetLine",
    "BudgetUnit",
    "ContextStatus",
    "Durability",
    "OracleContext",
    "Project",
    "Reservation",
    "RunJournal",
    "Store",
    "StoreLocation",
    "StoreState",
    "TokenRecord",
    "inspect",
    "migrate",
    "parse_location",
    "record",
    "reserve",
    "settle",
]
