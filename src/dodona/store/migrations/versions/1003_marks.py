"""Marks of threads, their entries, the state of rule packs and global keys: none for old rows."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Text

revision = "1003"
down_revision = "1002"

_TABLES = ("threads", "thread_entries", "plugin_state", "tree_globals")


def upgrade() -> None:
    for table in _TABLES:
        op.add_column(table, Column("marks_json", Text))
