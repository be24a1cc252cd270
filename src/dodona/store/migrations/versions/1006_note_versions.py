"""The versions of notes."""

from __future__ import annotations

from alembic import op
from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Text,
)

revision = "1006"
down_revision = "1005"


def upgrade() -> None:
    op.create_table(
        "note_versions",
        Column("id", BigInteger().with_variant(Integer, "sqlite"), nullable=False),
        Column("user_id", Text, nullable=False),
        Column("project_id", Text, nullable=False),
        Column("path", Text, nullable=False),
        Column("version", Text, nullable=False),
        Column("old_version", Text, nullable=False),
        Column("content", LargeBinary),
        Column("size", Integer, nullable=False),
        Column("stored_bytes", Integer, nullable=False),
        Column("action", Text, nullable=False),
        Column("author", Text, nullable=False),
        Column("from_path", Text),
        Column("move_id", BigInteger),
        Column("undoes", BigInteger),
        Column("written_at", Double, nullable=False),
        PrimaryKeyConstraint("id", name="pk_note_versions"),
        CheckConstraint(
            "action IN ('external', 'write', 'index', 'move', 'undo')",
            name="ck_note_versions_action",
        ),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_note_versions_path", "note_versions", ["user_id", "project_id", "path", "id"]
    )
    op.create_index(
        "ix_note_versions_project",
        "note_versions",
        ["user_id", "project_id", "id", "stored_bytes"],
    )
    op.create_index("ix_note_versions_written_at", "note_versions", ["written_at", "id"])
