"""What outlives the process: conversations, runs, journals, budgets, on SQLite or PostgreSQL."""

from __future__ import annotations

from dodona.core.contexts import ContextStatus, OracleContext
from dodona.core.projects import Project
from dodona.core.sessions import Session
from dodona.core.spending import NANOS, Budget, BudgetLine, Reservation, TokenRecord, Unit
from dodona.store.budgets import reserve, settle
from dodona.store.contexts import add_decisions, touch_context
from dodona.store.conversations import HEAD
from dodona.store.journal import RunJournal
from dodona.store.location import Location, locate
from dodona.store.opening import Durability, StoreState, inspect, migrate
from dodona.store.records import record
from dodona.store.sessions import count_session
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
