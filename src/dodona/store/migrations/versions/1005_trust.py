"""Marks of summaries and of contexts; approvals that are bound to one call."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Boolean, Column, Text, text

revision = "1005"
down_revision = "1004"


def upgrade() -> None:
    op.add_column("summaries", Column("marks_json", Text))
    op.add_column(
        "summaries", Column("is_private", Boolean, nullable=False, server_default=text("false"))
    )
    op.add_column("oracle_contexts", Column("marks_json", Text))
    op.add_column("approvals", Column("arguments_hash", Text, nullable=False, server_default=""))
    op.add_column("approvals", Column("marks_json", Text))
    op.add_column("approvals", Column("used_by", Text))
