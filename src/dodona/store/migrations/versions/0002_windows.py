"""Windows with a common prefix, snapshots with which runs start, and lists of a user's runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    for column in (
        sa.Column("user_id", sa.Text(), server_default="", nullable=False),
        sa.Column("window_from", ID, nullable=True),
        sa.Column("window_runs", sa.Integer(), server_default="0", nullable=False),
        sa.Column("window_tokens", sa.Integer(), server_default="0", nullable=False),
    ):
        op.add_column("runs", column)
    op.execute(
        "UPDATE runs SET user_id = "
        "(SELECT user_id FROM conversations WHERE conversations.id = runs.conversation_id)"
    )
    op.create_index("ix_runs_user_id", "runs", ["user_id", "id"], unique=False)
    op.create_table(
        "pins",
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("hash", name=op.f("pk_pins")),
    )
