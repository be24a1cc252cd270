"""Migration of a database to this version of Dodona."""

from __future__ import annotations

import threading
from typing import Any, Final

from dodona.core.errors import StoreError

REVISIONS: Final = (  # oldest first
    *("1001", "1002", "1003", "1004", "1005", "1006", "1007", "1008"),
)
NEWEST_REVISION: Final = REVISIONS[-1]
# Of development versions. Their six migrations were replaced by one before the first release.
RETIRED_REVISIONS: Final = ("0001", "0002", "0003", "0004", "0005", "0006")
SCRIPT_LOCATION: Final = "dodona.store:migrations"
VERSION_TABLE: Final = "dodona_version"

_alembic_lock = threading.Lock()  # its context is global: one migration at a time per process


def check_revision(revision: str, name: str) -> None:
    """Raise StoreError unless this version supports the schema of a store or backup."""
    if revision in RETIRED_REVISIONS:
        raise StoreError(
            f"{name} was written by a development version of Dodona (its schema is {revision}), "
            "and this version cannot migrate it.",
            hint="Nothing was changed. Read it with the version that wrote it. To start with a new "
            "store, move the old one away, or set [store] url to another one.",
        )
    if revision not in REVISIONS:
        raise StoreError(
            f"{name} was written by a newer Dodona (its schema is {revision}, this version "
            f"supports {NEWEST_REVISION}).",
            hint="Nothing was changed. Upgrade Dodona, or set [store] url to another store.",
        )


def upgrade(connection: Any, *, dialect: str, to: str = "head") -> None:
    """Run the missing migrations on a driver's connection, in its transaction."""
    # Imported on use: most starts have no migration to run.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415
    from sqlalchemy import create_engine  # noqa: PLC0415
    from sqlalchemy.exc import DBAPIError  # noqa: PLC0415
    from sqlalchemy.pool import StaticPool  # noqa: PLC0415

    url = "sqlite://" if dialect == "sqlite" else "postgresql+psycopg://"
    engine = create_engine(url, creator=lambda: connection, poolclass=StaticPool)
    # The caller owns the transaction: a migration is applied completely or not at all.
    for name in ("do_begin", "do_commit", "do_rollback", "do_close"):
        setattr(engine.dialect, name, _do_nothing)
    config = Config()
    config.set_main_option("script_location", SCRIPT_LOCATION)
    try:
        with _alembic_lock, engine.connect() as shared:
            config.attributes["connection"] = shared
            command.upgrade(config, to)
    except DBAPIError as error:
        raise error.orig or error from error  # the driver's own error, which the caller handles


def _do_nothing(connection: Any) -> None:
    """Leave transactions to the caller."""
