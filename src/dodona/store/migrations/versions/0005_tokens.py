"""Expiry of tokens; the audit log; an index of a user's unfinished runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

# Entries are never changed.
KEPT_BY = {
    "sqlite": (
        "CREATE TRIGGER audit_same BEFORE UPDATE ON audit "
        "BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END",
    ),
    "postgresql": (
        "CREATE FUNCTION dodona_keep_audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "RAISE EXCEPTION 'the audit log is only added to' "
        "USING ERRCODE = 'integrity_constraint_violation'; END $$",
        "CREATE TRIGGER audit_same BEFORE UPDATE ON audit "
        "FOR EACH ROW EXECUTE FUNCTION dodona_keep_audit()",
    ),
}

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("tokens", sa.Column("expires_at", sa.Double(), nullable=True))
    is_open = sa.text("status IN ('queued', 'running', 'waiting')")
    op.create_index(
        "ix_runs_open_user",
        "runs",
        ["user_id"],
        unique=False,
        sqlite_where=is_open,
        postgresql_where=is_open,
    )
    _make_audit()


def _make_audit() -> None:
    op.create_table(
        "audit",
        sa.Column("id", ID, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), server_default="", nullable=False),
        sa.Column("token_id", ID, nullable=True),
        sa.Column("address", sa.Text(), server_default="", nullable=False),
        sa.Column("what", sa.Text(), nullable=False),
        sa.Column("more", sa.Integer(), server_default="0", nullable=False),
        sa.CheckConstraint(
            "kind IN ('auth', 'denied', 'limit', 'budget', 'admin')", name=op.f("ck_audit_kind")
        ),
        sa.CheckConstraint("outcome IN ('refused', 'done')", name=op.f("ck_audit_outcome")),
        sa.CheckConstraint("what <> ''", name=op.f("ck_audit_what")),
        sa.CheckConstraint("more >= 0", name=op.f("ck_audit_more")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_audit_at", "audit", ["at"], unique=False)
    op.create_index("ix_audit_kind", "audit", ["kind", "id"], unique=False)
    for line in KEPT_BY[op.get_bind().dialect.name]:
        op.execute(line)
