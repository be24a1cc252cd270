"""SQL compiled once. SQLAlchemy writes it for both databases; the drivers run it.

Compiling and executing through SQLAlchemy costs several times the statement itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from sqlalchemy import Table, bindparam, insert
from sqlalchemy.dialects.postgresql import Insert as PostgresInsert
from sqlalchemy.dialects.postgresql import psycopg
from sqlalchemy.dialects.sqlite import Insert as SqliteInsert
from sqlalchemy.dialects.sqlite import pysqlite
from sqlalchemy.sql import ClauseElement

from dodona.store.text import storable

Insert: TypeAlias = SqliteInsert | PostgresInsert

SQLITE: Final = "sqlite"
POSTGRES: Final = "postgresql"

_DIALECTS = {
    SQLITE: pysqlite.dialect(paramstyle="named"),
    POSTGRES: psycopg.dialect(),
}


class Statement:
    """One statement in the words of each database, with the values that never change."""

    __slots__ = ("_fixed", "_make", "_sql")

    def __init__(self, make: Callable[[str], ClauseElement]) -> None:
        self._make = make
        self._sql: dict[str, str] = {}
        self._fixed: dict[str, Any] = {}

    def sql(self, dialect: str) -> str:
        try:
            return self._sql[dialect]
        except KeyError:
            return self._compiled(dialect)

    def values(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """The values to run it with, their texts mended; `sql` was asked for before."""
        values = dict(self._fixed)
        for name, value in given.items():
            values[name] = storable(value) if type(value) is str else value
        return values

    def _compiled(self, dialect: str) -> str:
        compiled = self._make(dialect).compile(dialect=_DIALECTS[dialect])
        bound = compiled.binds.items()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
        self._fixed.update({name: bind.value for name, bind in bound if not bind.required})  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        self._sql[dialect] = str(compiled)
        return self._sql[dialect]


def statement(element: ClauseElement) -> Statement:
    """A statement that both databases spell alike, up to what SQLAlchemy knows."""
    return Statement(lambda _: element)


def upsert(table: Table, write: Callable[[Insert], ClauseElement]) -> Statement:
    """An insert with ON CONFLICT, which each dialect has as an Insert of its own."""

    def make(dialect: str) -> ClauseElement:
        insert = SqliteInsert(table) if dialect == SQLITE else PostgresInsert(table)
        return write(insert)

    return Statement(make)


def insertion(table: Table, *names: str, returning: str | None = None) -> Statement:
    """INSERT of one row; each value is given under its column's name."""
    element = insert(table).values({name: bindparam(name) for name in names})
    return statement(element if returning is None else element.returning(table.c[returning]))


def replacement(table: Table, *names: str) -> Statement:
    """INSERT of one row, or UPDATE of the one that has its primary key."""
    keys = [column.name for column in table.primary_key]

    def write(add: Insert) -> ClauseElement:
        fresh = {name: add.excluded[name] for name in names if name not in keys}
        rows = add.values({name: bindparam(name) for name in names})
        return rows.on_conflict_do_update(index_elements=keys, set_=fresh)

    return upsert(table, write)
