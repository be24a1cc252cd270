"""SQL compiled once. SQLAlchemy writes it for both databases; the drivers run it.

Compiling and executing through SQLAlchemy costs several times the statement itself.
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
    """One statement in the words of each database, with the values that never change."""

    __slots__ = ("_build", "_constants", "_sql", "_text_names", "to_positional")

    def __init__(self, build: Callable[[str], ClauseElement]) -> None:
        self._build = build
        self._sql: dict[str, str] = {}
        self._constants: dict[str, Any] = {}
        self._text_names: tuple[str, ...] = ()  # the values that may be text
        # SQLite binds values by place for half the price of binding them by name.
        self.to_positional: Callable[[dict[str, Any]], Sequence[Any]] = _no_values

    def sql(self, dialect: str) -> str:
        try:
            return self._sql[dialect]
        except KeyError:
            return self._compile(dialect)

    def prepare(self, values: dict[str, Any]) -> dict[str, Any]:
        """The values to run it with, their texts mended in place; `sql` was asked for before."""
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
        # Added up: one dialect may have more of them than the other, such as an OFFSET.
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
    """Takes the values of some names out of a map, in their order."""
    if len(names) > 1:
        return itemgetter(*names)
    return (lambda given: (given[names[0]],)) if names else _no_values


def statement(element: ClauseElement) -> Statement:
    """A statement that both databases spell alike, up to what SQLAlchemy knows."""
    return Statement(lambda _: element)


def upsert(table: Table, write: Callable[[Insert], ClauseElement]) -> Statement:
    """An insert with ON CONFLICT, which each dialect has as an Insert of its own."""

    def make(dialect: str) -> ClauseElement:
        insert = SqliteInsert(table) if dialect == SQLITE else PostgresInsert(table)
        return write(insert)

    return Statement(make)


def insert_into(table: Table, *names: str) -> Statement:
    """INSERT of one row; each value is given under its column's name."""
    return statement(_insert(table, names))


def insert_returning_id(table: Table, *names: str) -> Statement:
    """INSERT of one row whose id is wanted: SQLite knows it anyway, PostgreSQL is asked."""

    def make(dialect: str) -> ClauseElement:
        element = _insert(table, names)
        return element if dialect == SQLITE else element.returning(table.c.id)

    return Statement(make)


def _insert(table: Table, names: Sequence[str]) -> GenericInsert:
    return insert(table).values({name: bindparam(name) for name in names})


def insert_or_replace(table: Table, *names: str) -> Statement:
    """INSERT of one row, or UPDATE of the one that has its primary key."""
    keys = [column.name for column in table.primary_key]

    def write(add: Insert) -> ClauseElement:
        fresh = {name: add.excluded[name] for name in names if name not in keys}
        rows = add.values({name: bindparam(name) for name in names})
        return rows.on_conflict_do_update(index_elements=keys, set_=fresh)

    return upsert(table, write)
