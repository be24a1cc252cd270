"""A second migration, as a later Dodona would have it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import dodona.store.migrations
from dodona.store.db import migrate
from dodona.store.db import open as opening

LATER = """
import sqlalchemy as sa
from alembic import op

revision = "1002"
down_revision = "1001"


def upgrade():
    op.add_column("notices", sa.Column("colour", sa.Text(), server_default="", nullable=False))
    op.execute("UPDATE notices SET colour = 'red' WHERE severity = 'error'")
    op.create_index("ix_notices_colour", "notices", ["colour"], unique=False)
"""


def add_migration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, the newest schema is 1002."""
    folder = tmp_path / "migrations"
    shutil.copytree(Path(*dodona.store.migrations.__path__), folder)
    (folder / "versions" / "1002_later.py").write_text(LATER)
    monkeypatch.setattr(migrate, "SCRIPT_LOCATION", str(folder))
    monkeypatch.setattr(migrate, "REVISIONS", (*migrate.REVISIONS, "1002"))
    for module in (migrate, opening):
        monkeypatch.setattr(module, "NEWEST_REVISION", "1002")
