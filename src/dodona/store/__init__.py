"""What outlives the process: conversations, runs, journals, budgets, on SQLite or PostgreSQL."""

from __future__ import annotations

from dodona.core.domain.budgets import NANOS, Budget, BudgetLine, Reservation, TokenRecord, Unit
from dodona.core.domain.conversations.contexts import ContextStatus, OracleContext
from dodona.core.domain.conversations.sessions import Session
from dodona.core.domain.projects import Project
from dodona.store.billing.budgets import reserve, settle
from dodona.store.billing.token_records import record
from dodona.store.conversations.contexts import add_decisions, touch_context
from dodona.store.conversations.conversations import HEAD
from dodona.store.conversations.sessions import count_session
from dodona.store.db.location import Location, locate
from dodona.store.db.open import Durability, StoreState, inspect, migrate
from dodona.store.runs.journal import RunJournal
from dodona.store.store import Store

__all__ = [
    "HEAD",
    "NANOS",
    "Budget",
    "BudgetLine",
    "ContextStatus",
    "Durability",
    "Location",
    "OracleContext",
    "Project",
    "Reservation",
    "RunJournal",
    "Session",
    "Store",
    "StoreState",
    "TokenRecord",
    "Unit",
    "add_decisions",
    "count_session",
    "inspect",
    "locate",
    "migrate",
    "record",
    "reserve",
    "settle",
    "touch_context",
]
