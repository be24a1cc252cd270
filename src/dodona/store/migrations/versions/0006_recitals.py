"""Conversations that are found by a digest of their messages."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_KNOWN = sa.text("said_digest IS NOT NULL")


def upgrade() -> None:
    op.add_column("runs", sa.Column("said_digest", sa.Text(), nullable=True))
    op.create_index(
        "ix_runs_said_digest",
        "runs",
        ["user_id", "said_digest"],
        unique=False,
        sqlite_where=_KNOWN,
        postgresql_where=_KNOWN,
    )
