"""The marks of notes."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, Double, Integer, PrimaryKeyConstraint, Text

revision = "1004"
down_revision = "1003"


def upgrade() -> None:
    op.create_table(
        "note_marks",
        Column("id", BigInteger().with_variant(Integer, "sqlite"), nullable=False),
        Column("user_id", Text, nullable=False),
        Column("folder", Text, nullable=False),
        Column("block", BigInteger, nullable=False),
        Column("marks_json", Text, nullable=False),
        Column("created_at", Double, nullable=False),
        PrimaryKeyConstraint("id", name="pk_note_marks"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_note_marks_user_id", "note_marks", ["user_id", "id"])
    op.create_index("ix_note_marks_folder", "note_marks", ["folder", "id"])
    columns = ["user_id", "folder", "block"]
    op.create_index("uq_note_marks_block", "note_marks", columns, unique=True)
