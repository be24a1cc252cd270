"""Backup and restore of a PostgreSQL store, with a COPY file per table.

No tools of the server are needed: everything uses our own connection, in one transaction.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from psycopg.sql import SQL, Composed, Identifier

from dodona.core.errors import StoreError
from dodona.store.backup.manifest import Manifest, OnProgress, read_blocks
from dodona.store.db import postgres
from dodona.store.db.location import StoreLocation
from dodona.store.db.migrate import VERSION_TABLE, upgrade
from dodona.store.db.open import MIGRATION_LOCK_ID
from dodona.store.schema import metadata

TABLES_FOLDER: Final = "tables"
PREVIOUS_SCHEMA: Final = "dodona_before_restore"
_DISCONNECT_SECONDS: Final = 2.0

_SELECT_COLUMNS: Final = (
    "SELECT column_name FROM information_schema.columns WHERE table_schema = current_schema() "
    "AND table_name = %s AND is_generated = 'NEVER' ORDER BY ordinal_position"
)
_SELECT_TABLES: Final = (
    "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() "
    "AND table_type = 'BASE TABLE' AND table_name = ANY(%s) ORDER BY table_name"
)
_SELECT_FUNCTIONS: Final = (
    "SELECT oid::regprocedure::text FROM pg_proc "
    "WHERE pronamespace = current_schema()::regnamespace AND proname LIKE 'dodona\\_%'"
)
_SELECT_FOREIGN_KEYS: Final = (
    "SELECT relname, conname, pg_get_constraintdef(pg_constraint.oid) FROM pg_constraint "
    "JOIN pg_class ON pg_class.oid = conrelid WHERE contype = 'f' "
    "AND connamespace = current_schema()::regnamespace AND relname = ANY(%s)"
)
_COUNT_CONNECTIONS: Final = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
    "AND application_name = 'dodona' AND pid <> pg_backend_pid()"
)


@dataclass(frozen=True, slots=True)
class CopyResult:
    tables: dict[str, int]
    columns: dict[str, list[str]]
    sequences: dict[str, tuple[int, bool]]


def copy(location: StoreLocation, folder: Path, on_progress: OnProgress) -> CopyResult:
    """Copy a consistent snapshot of all committed data, without blocking others."""
    (folder / TABLES_FOLDER).mkdir(mode=0o700)
    with postgres.connected(location) as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        names = _list_tables(connection)
        columns = {name: _fetch_column(connection, _SELECT_COLUMNS, name) for name in names}
        rows = {name: _count_rows(connection, name) for name in names}
        done, total = 0, sum(rows.values())
        for name in names:
            for count in _copy_out(connection, name, columns[name], folder / TABLES_FOLDER / name):
                on_progress(done + count, total)
            done += rows[name]
        sequences = dict(_read_sequences(connection, columns))
        connection.execute("ROLLBACK")
    return CopyResult(rows, columns, sequences)


def _copy_out(
    connection: postgres.Connection, name: str, columns: list[str], file: Path
) -> Iterator[int]:
    """Write a table to a file; yield the number of rows so far from time to time."""
    query = SQL("COPY {} ({}) TO STDOUT").format(Identifier(name), _column_list(columns))
    count = 0
    with (
        open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as target,
        connection.cursor() as cursor,
        cursor.copy(query) as rows,
    ):
        for row in rows:
            target.write(row)
            count += 1
            if count % 1000 == 0:
                yield count
        target.flush()
        os.fsync(target.fileno())
    yield count


def problems(folder: Path, manifest: Manifest) -> list[str]:
    """Return the problems of the rows; finding others would need a PostgreSQL server."""
    problems: list[str] = []
    for name, expected in manifest.tables.items():
        lines = sum(block.count(b"\n") for block in read_blocks(folder / TABLES_FOLDER / name))
        if lines != expected:
            problems.append(f"{name} has {lines:,} rows, not {expected:,}")
    return problems


def restore(
    folder: Path, manifest: Manifest, location: StoreLocation, on_progress: OnProgress
) -> str | None:
    """Load a backup in one transaction; return the schema to which previous tables are moved."""
    with postgres.connected(location) as connection:
        connection.autocommit = False
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK_ID,))
        if count := _count_connections(connection):
            raise StoreError(
                f"the store {location} is in use by {count} connections of Dodona.",
                hint="Stop the gateway first. Nothing was changed.",
            )
        previous = _move_to_previous_schema(connection)
        upgrade(connection, dialect="postgresql", to=manifest.schema)
        _copy_in(connection, folder, manifest, on_progress)
        connection.commit()
        return previous


def _count_connections(connection: postgres.Connection) -> int:
    """Count the other connections of Dodona. One that was just closed is listed a moment longer."""
    deadline = time.monotonic() + _DISCONNECT_SECONDS
    while (count := _fetch_column(connection, _COUNT_CONNECTIONS)[0]) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.02)
        connection.execute("SELECT pg_stat_clear_snapshot()")
    return count


def _move_to_previous_schema(connection: postgres.Connection) -> str | None:
    """Move the existing tables and functions into a separate schema."""
    names = [*_list_tables(connection), *_fetch_column(connection, _SELECT_TABLES, [VERSION_TABLE])]
    if not names:
        return None
    schema, number = PREVIOUS_SCHEMA, 1
    while _fetch_column(connection, "SELECT 1 FROM pg_namespace WHERE nspname = %s", schema):
        number += 1
        schema = f"{PREVIOUS_SCHEMA}_{number}"
    _execute(connection, SQL("CREATE SCHEMA {}").format(Identifier(schema)))
    functions = _fetch_column(connection, _SELECT_FUNCTIONS)
    for name in names:
        _execute(
            connection, SQL("ALTER TABLE {} SET SCHEMA {}").format(*map(Identifier, (name, schema)))
        )
    for name in functions:
        _execute(
            connection,
            SQL("ALTER FUNCTION ") + _raw(name) + SQL(" SET SCHEMA ") + Identifier(schema),
        )
    return schema


def _copy_in(
    connection: postgres.Connection, folder: Path, manifest: Manifest, on_progress: OnProgress
) -> None:
    """Load the tables; foreign keys are added again when all rows are loaded."""
    foreign_keys: list[Any] = connection.execute(
        _SELECT_FOREIGN_KEYS, (list(manifest.tables),)
    ).fetchall()
    for table, name, _ in foreign_keys:
        _execute(
            connection,
            SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(Identifier(table), Identifier(name)),
        )
    done = 0
    for name, count in manifest.tables.items():
        query = SQL("COPY {} ({}) FROM STDIN").format(
            Identifier(name), _column_list(manifest.columns[name])
        )
        with connection.cursor() as cursor, cursor.copy(query) as rows:
            for block in read_blocks(folder / TABLES_FOLDER / name):
                rows.write(block)
        done += count
        on_progress(done, manifest.rows)
    for table, name, definition in foreign_keys:
        add = SQL("ALTER TABLE {} ADD CONSTRAINT {} ").format(Identifier(table), Identifier(name))
        _execute(connection, add + _raw(definition))
    for key, (value, is_called) in manifest.sequences.items():
        table, _, column = key.partition(".")
        connection.execute(
            "SELECT setval(pg_get_serial_sequence(%s, %s), %s, %s)",
            (table, column, value, is_called),
        )


# -- helpers ---------------------------------------------------------------------------------


def _list_tables(connection: postgres.Connection) -> list[str]:
    """Return those of our tables that exist: an older schema has fewer."""
    return _fetch_column(connection, _SELECT_TABLES, list(metadata.tables))


def _fetch_column(connection: postgres.Connection, query: Any, *values: Any) -> list[Any]:
    return [row[0] for row in connection.execute(query, values or None).fetchall()]


def _count_rows(connection: postgres.Connection, name: str) -> int:
    query = SQL("SELECT count(*) FROM {}").format(Identifier(name))
    row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]


def _read_sequences(
    connection: postgres.Connection, columns: dict[str, list[str]]
) -> Iterator[tuple[str, tuple[int, bool]]]:
    """Return the state of each sequence, so that ids of deleted rows are not reused."""
    for table, names in columns.items():
        for column in names:
            (sequence,) = _fetch_column(
                connection, "SELECT pg_get_serial_sequence(%s, %s)", table, column
            )
            if sequence is not None:
                query = SQL("SELECT last_value, is_called FROM ") + _raw(sequence)
                row = connection.execute(query).fetchone()
                assert row is not None
                yield f"{table}.{column}", (row[0], row[1])


def _execute(connection: postgres.Connection, query: Composed) -> None:
    connection.execute(query)


def _column_list(names: list[str]) -> Composed:
    return SQL(", ").join(map(Identifier, names))


def _raw(text: Any) -> Any:
    """Use a text that the server wrote as SQL, unchanged."""
    return SQL(text)
