"""Why runs ended."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Text

revision = "1008"
down_revision = "1007"


def upgrade() -> None:
    op.add_column("runs", Column("finish", Text))
    op.add_column("runs", Column("termination_reason", Text))
    op.execute("UPDATE runs SET termination_reason = 'cancelled' WHERE status = 'cancelled'")
    op.execute("UPDATE runs SET termination_reason = 'error' WHERE status = 'failed'")
