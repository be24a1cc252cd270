"""Notices of events, with a trigger and an idempotency key; approvals of tool calls."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    # Recreated: SQLite cannot add a constraint to an existing table. Nothing refers to notices, and
    # older versions have written few.
    kept = _read_notices()
    op.drop_table("notices")
    _make_notices()
    _write_notices(kept)
    _make_approvals()


def _read_notices() -> list[dict[str, Any]]:
    """Convert a text into an event with this text, due in the next run."""
    rows = op.get_bind().execute(sa.text("SELECT * FROM notices ORDER BY id")).mappings()
    return [_with_event(dict(row)) for row in rows]


def _with_event(row: dict[str, Any]) -> dict[str, Any]:
    event = {
        "id": f"notice-{row['id']}",
        "type": row["event_type"],
        "source": "store",
        "severity": row["severity"],
        "payload": {"message": row.pop("content")},
        "timestamp": row["created_at"],
        "dedupe_key": "",
    }
    return {**row, "event_json": json.dumps(event, ensure_ascii=False), "moment": "session"}


def _make_notices() -> None:
    op.create_table(
        "notices",
        sa.Column("id", ID, nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("run_id", ID, nullable=True),
        sa.Column("event_type", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("event_json", sa.Text(), nullable=False),
        sa.Column("moment", sa.Text(), nullable=False),
        sa.Column("due_at", sa.Double(), nullable=True),
        sa.Column("tool", sa.Text(), server_default="", nullable=False),
        sa.Column("condition", sa.Text(), server_default="", nullable=False),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("delivered_at", sa.Double(), nullable=True),
        sa.CheckConstraint(
            "severity IN ('debug', 'info', 'warning', 'error', 'critical')",
            name=op.f("ck_notices_severity"),
        ),
        sa.CheckConstraint(
            "moment IN ('time', 'tool', 'condition', 'session')", name=op.f("ck_notices_moment")
        ),
        sa.CheckConstraint(
            "(moment = 'time') = (due_at IS NOT NULL)", name=op.f("ck_notices_due_at")
        ),
        sa.CheckConstraint("(moment = 'tool') = (tool <> '')", name=op.f("ck_notices_tool")),
        sa.CheckConstraint(
            "(moment = 'condition') = (condition <> '')", name=op.f("ck_notices_condition")
        ),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_notices_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notices")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_notices_run_id", "notices", ["run_id"], unique=False)
    op.create_index("ix_notices_user_id", "notices", ["user_id", "id"], unique=False)
    _create_partial("ix_notices_pending", ["user_id", "project_id", "id"], "delivered_at IS NULL")
    _create_partial("uq_notices_key", ["user_id", "key"], "key IS NOT NULL", unique=True)


def _create_partial(
    name: str, columns: list[str], where: str, *, table: str = "notices", unique: bool = False
) -> None:
    condition = sa.text(where)
    op.create_index(
        name, table, columns, unique=unique, sqlite_where=condition, postgresql_where=condition
    )


def _write_notices(kept: list[dict[str, Any]]) -> None:
    if not kept:
        return
    op.bulk_insert(sa.table("notices", *map(sa.column, kept[0])), kept)
    if op.get_bind().dialect.name != "sqlite":
        # Explicit ids do not advance PostgreSQL's sequence.
        op.execute(
            "SELECT setval(pg_get_serial_sequence('notices', 'id'), (SELECT max(id) FROM notices))"
        )


def _make_approvals() -> None:
    op.create_table(
        "approvals",
        sa.Column("run_id", ID, nullable=False),
        sa.Column("call_id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("arguments_json", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("asked_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.Column("decision", sa.Text(), server_default="pending", nullable=False),
        sa.Column("decided_at", sa.Double(), nullable=True),
        sa.Column("decided_by", sa.Text(), nullable=True),
        sa.Column("note", sa.Text(), server_default="", nullable=False),
        sa.CheckConstraint(
            "decision IN ('pending', 'approved', 'denied', 'expired')",
            name=op.f("ck_approvals_decision"),
        ),
        sa.CheckConstraint(
            "(decision = 'pending') = (decided_at IS NULL) "
            "AND (decided_at IS NULL) = (decided_by IS NULL)",
            name=op.f("ck_approvals_decided"),
        ),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_approvals_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "call_id", name=op.f("pk_approvals")),
    )
    _create_partial(
        "ix_approvals_pending",
        ["user_id", "asked_at"],
        "decision = 'pending'",
        table="approvals",
    )
