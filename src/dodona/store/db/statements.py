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

from dodona.store.db.text import storable

Insert: TypeAlias = SqliteInsert | PostgresInsert

SQLITE: Final = "sqlite"
POSTGRES: Final = "postgresql"

_DIALECTS = {
    SQLITE: pysqlite.dialect(paramstyle="qmark"),
    POSTGRES: psycopg.dialect(),
}


class Statement:
    """One statement in the words of each database, with the values that never change."""

    __slots__ = ("_fixed", "_make", "_sql", "_texts", "ordered")

    def __init__(self, make: Callable[[str], ClauseElement]) -> None:
        self._make = make
        self._sql: dict[str, str] = {}
        self._fixed: dict[str, Any] = {}
        self._texts: tuple[str, ...] = ()  # the values that may be text
        # SQLite binds values by place for half the price of binding them by name.
        self.ordered: Callable[[dict[str, Any]], Sequence[Any]] = _nothing

    def sql(self, dialect: str) -> str:
        try:
            return self._sql[dialect]
        except KeyError:
            return self._compiled(dialect)

    def values(self, given: dict[str, Any]) -> dict[str, Any]:
        """The values to run it with, their texts mended in place; `sql` was asked for before."""
        for name in self._texts:
            value = given[name]
            if type(value) is str and ("\0" in value or not value.isascii()):
                given[name] = storable(value)
        if self._fixed:
            given.update(self._fixed)
        return given

    def _compiled(self, dialect: str) -> str:
        compiled: Any = self._make(dialect).compile(dialect=_DIALECTS[dialect])
        binds = cast(dict[str, BindParameter[Any]], compiled.binds)
        # Added up: one dialect may have more of them than the other, such as an OFFSET.
        self._fixed |= {name: bind.value for name, bind in binds.items() if not bind.required}
        self._texts = tuple(
            name
            for name, bind in binds.items()
            if bind.required and isinstance(bind.type, String | NullType)
        )
        if dialect == SQLITE:
            self.ordered = _getter(compiled.positiontup)
        self._sql[dialect] = str(compiled)
        return self._sql[dialect]


def _nothing(_: dict[str, Any]) -> Sequence[Any]:
    return ()


def _getter(names: Sequence[str]) -> Callable[[dict[str, Any]], Sequence[Any]]:
    """Takes the values of some names out of a map, in their order."""
    if len(names) > 1:
        return itemgetter(*names)
    return (lambda given: (given[names[0]],)) if names else _nothing


def statement(element: ClauseElement) -> Statement:
    """A statement that both databases spell alike, up to what SQLAlchemy knows."""
    return Statement(lambda _: element)


def upsert(table: Table, write: Callable[[Insert], ClauseElement]) -> Statement:
    """An insert with ON CONFLICT, which each dialect has as an Insert of its own."""

    def make(dialect: str) -> ClauseElement:
        insert = SqliteInsert(table) if dialect == SQLITE else PostgresInsert(table)
        return write(insert)

    return Statement(make)


def insertion(table: Table, *names: str) -> Statement:
    """INSERT of one row; each value is given under its column's name."""
    return statement(_insert(table, names))


def addition(table: Table, *names: str) -> Statement:
    """INSERT of one row whose id is wanted: SQLite knows it anyway, PostgreSQL is asked."""

    def make(dialect: str) -> ClauseElement:
        element = _insert(table, names)
        return element if dialect == SQLITE else element.returning(table.c.id)

    return Statement(make)


def _insert(table: Table, names: Sequence[str]) -> GenericInsert:
    return insert(table).values({name: bindparam(name) for name in names})


def replacement(table: Table, *names: str) -> Statement:
    """INSERT of one row, or UPDATE of the one that has its primary key."""
    keys = [column.name for column in table.primary_key]

    def write(add: Insert) -> ClauseElement:
        fresh = {name: add.excluded[name] for name in names if name not in keys}
        rows = add.values({name: bindparam(name) for name in names})
        return rows.on_conflict_do_update(index_elements=keys, set_=fresh)

    return upsert(table, write)
