"""All tables, from SQL that SQLAlchemy generated once for each database from `store/schema.py`.

A change to `schema.py` is a migration of its own: this one does not change.
"""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "1001"
down_revision = None


def upgrade() -> None:
    connection = op.get_bind().execution_options(no_parameters=True)
    file = Path(__file__).with_suffix(f".{connection.dialect.name}.sql")
    # A trigger contains semicolons too, but not at the end of a line.
    for statement in file.read_text(encoding="utf-8").removesuffix(";\n").split(";\n"):
        connection.exec_driver_sql(statement)
