"""The first schema, as an older Dodona left it, and one more migration, as a later one has it."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

import dodona.store.migrations
from dodona.store.db import migrate
from dodona.store.db import open as opening
from dodona.store.db.location import parse_location

LATER_REVISION = "2000"

LATER = """
import sqlalchemy as sa
from alembic import op

revision = "{revision}"
down_revision = "{before}"


def upgrade():
    op.add_column("notices", sa.Column("colour", sa.Text(), server_default="", nullable=False))
    op.execute("UPDATE notices SET colour = 'red' WHERE severity = 'error'")
    op.create_index("ix_notices_colour", "notices", ["colour"], unique=False)
"""


def make_first(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a store of the first schema: the migrations after it do not run."""
    with monkeypatch.context() as patch:
        patch.setattr(opening, "upgrade", partial(migrate.upgrade, to=migrate.REVISIONS[0]))
        opening.migrate(parse_location(url))


def add_migration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, the newest schema is LATER_REVISION."""
    folder = tmp_path / "migrations"
    shutil.copytree(Path(*dodona.store.migrations.__path__), folder)
    text = LATER.format(revision=LATER_REVISION, before=migrate.REVISIONS[-1])
    (folder / "versions" / f"{LATER_REVISION}_later.py").write_text(text)
    monkeypatch.setattr(migrate, "SCRIPT_LOCATION", str(folder))
    monkeypatch.setattr(migrate, "REVISIONS", (*migrate.REVISIONS, LATER_REVISION))
    for module in (migrate, opening):
        monkeypatch.setattr(module, "NEWEST_REVISION", LATER_REVISION)
