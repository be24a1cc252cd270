"""Indexes of messages by role and by time, and of token records by run."""

from __future__ import annotations

from alembic import op

revision = "1007"
down_revision = "1006"


def upgrade() -> None:
    op.create_index("ix_messages_role", "messages", ["conversation_id", "role"])
    op.create_index("ix_messages_created_at", "messages", ["conversation_id", "created_at"])
    op.create_index("ix_token_records_run_id", "token_records", ["run_id"])
