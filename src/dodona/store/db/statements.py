"""SQL statements compiled once by SQLAlchemy for both databases, and run by the drivers.

Compiling and executing through SQLAlchemy costs several times as much as the statement itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final, TypeAlias, cast

from sqlalchemy import BindParameter, String, Table, bindparam, insert
from sqlalchemy import Insert as GenericInsert
from sqlalchemy.dialects.postgresql import Insert as PostgresInsert
from sqlalchemy.dialects.postgresql import psycopg
from sqlalchemy.dialects.sqlite import Insert as SqliteInsert
from sqlalchemy.dialects.sqlite import pysqlite
from sqlalchemy.sql import ClauseElement
from sqlalchemy.types import NullType

from dodona.store.db.text import to_storable

Insert: TypeAlias = SqliteInsert | PostgresInsert

SQLITE: Final = "sqlite"
POSTGRES: Final = "postgresql"

_DIALECTS = {
    SQLITE: pysqlite.dialect(paramstyle="qmark"),
    POSTGRES: psycopg.dialect(),
}


class Statement:
    """One statement, compiled per dialect, with its constant values."""

    __slots__ = ("_build", "_constants", "_sql", "_text_names", "to_positional")

    def __init__(self, build: Callable[[str], ClauseElement]) -> None:
        self._build = build
        self._sql: dict[str, str] = {}
        self._constants: dict[str, Any] = {}
        self._text_names: tuple[str, ...] = ()  # the parameters that may be text
        # In SQLite, positional parameters cost half as much as named ones.
        self.to_positional: Callable[[dict[str, Any]], Sequence[Any]] = _no_values

    def sql(self, dialect: str) -> str:
        try:
            return self._sql[dialect]
        except KeyError:
            return self._compile(dialect)

    def prepare(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters, with texts made storable in place. Call `sql` before."""
        for name in self._text_names:
            value = values[name]
            if type(value) is str and ("\0" in value or not value.isascii()):
                values[name] = to_storable(value)
        if self._constants:
            values.update(self._constants)
        return values

    def _compile(self, dialect: str) -> str:
        compiled: Any = self._build(dialect).compile(dialect=_DIALECTS[dialect])
        binds = cast(dict[str, BindParameter[Any]], compiled.binds)
        # Merged: one dialect may have more constants than the other, such as an OFFSET.
        self._constants |= {name: bind.value for name, bind in binds.items() if not bind.required}
        self._text_names = tuple(
            name
            for name, bind in binds.items()
            if bind.required and isinstance(bind.type, String | NullType)
        )
        if dialect == SQLITE:
            self.to_positional = _getter(compiled.positiontup)
        self._sql[dialect] = str(compiled)
        return self._sql[dialect]


def _no_values(_: dict[str, Any]) -> Sequence[Any]:
    return ()


def _getter(names: Sequence[str]) -> Callable[[dict[str, Any]], Sequence[Any]]:
    """Return a function that picks values from a map by name, in order."""
    if len(names) > 1:
        return itemgetter(*names)
    return (lambda values: (values[names[0]],)) if names else _no_values


def statement(element: ClauseElement) -> Statement:
    """Build a statement that SQLAlchemy can compile for both databases."""
    return Statement(lambda _: element)


def upsert(table: Table, write: Callable[[Insert], ClauseElement]) -> Statement:
    """Build an INSERT with ON CONFLICT, for which each dialect has its own class."""

    def build(dialect: str) -> ClauseElement:
        insert = SqliteInsert(table) if dialect == SQLITE else PostgresInsert(table)
        return write(insert)

    return Statement(build)


def insert_into(table: Table, *names: str) -> Statement:
    """Build an INSERT of one row; values are named after their columns."""
    return statement(_insert(table, names))


def insert_returning_id(table: Table, *names: str) -> Statement:
    """Build an INSERT that returns the new id: built into SQLite, RETURNING in PostgreSQL."""

    def build(dialect: str) -> ClauseElement:
        element = _insert(table, names)
        return element if dialect == SQLITE else element.returning(table.c.id)

    return Statement(build)


def _insert(table: Table, names: Sequence[str]) -> GenericInsert:
    return insert(table).values({name: bindparam(name) for name in names})


def insert_if_absent(table: Table, *names: str) -> Statement:
    """Build an INSERT of one row that does nothing if it violates a unique constraint."""
    return upsert(
        table,
        lambda add: add.values({name: bindparam(name) for name in names}).on_conflict_do_nothing(),
    )


def insert_or_replace(table: Table, *names: str) -> Statement:
    """Build an INSERT of one row, or an UPDATE of the row with the same primary key."""
    keys = [column.name for column in table.primary_key]

    def write(add: Insert) -> ClauseElement:
        updates = {name: add.excluded[name] for name in names if name not in keys}
        rows = add.values({name: bindparam(name) for name in names})
        return rows.on_conflict_do_update(index_elements=keys, set_=updates)

    return upsert(table, write)
