"""store.md, of the tables of the store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from dodona.store import schema as tables
from dodona.store.db.migrate import NEWEST_REVISION as SCHEMA
from generating.writing import page, prose, table

C = TypeVar("C", bound=sa.Constraint)


TABLES: Mapping[str, str] = {
    "projects": "What a user works on, and where its notes and code are.",
    "conversations": "Trees of runs. The head is the node that the next run follows.",
    "runs": "The nodes of conversations: a question, its answer, and who drives it.",
    "messages": "What was said in a run, in order.",
    "pins": "What runs begin with: trees, prompts, tools, settings. Many begin alike.",
    "steps": "The journal of a run: what its steps were asked, and what they left.",
    "summaries": "Texts that stand for a run and all before it.",
    "oracle_contexts": "The conversation that a user has about a project.",
    "sessions": "The conversation that a peer has on a channel, by its key.",
    "budgets": "What may be spent in a period, what was, and what calls on their way hold.",
    "reservations": "What a call may use at most, until it is known what it did use.",
    "token_records": "The audit: one record for each call of a model.",
    "memory_entities": "Facts. One that is no longer true is superseded, not removed.",
    "threads": "Lines of thought in a project.",
    "thread_entries": "What was added to a thread.",
    "notices": "Events that an agent and its user are to be told of when they are due.",
    "approvals": "Calls of tools that a person must allow, and what was decided.",
    "plugin_state": "What packs of rules keep for a user.",
    "tree_globals": "The global keys of trees.",
    "settings": "What users have set.",
    "tokens": "Tokens of access, hashed.",
    "audit": "Who was turned away, and who changed what. Entries are never changed.",
}


def store_page() -> str:
    found = list(tables.metadata.tables.values())
    return page(
        "# The store's schema",
        prose(f"""The tables of the store, the same on SQLite and PostgreSQL. This is schema
            `{SCHEMA}`. [The store](../explanation/store.md) explains how they are used. They are
            for looking, not for writing: what holds between rows is seen to by Dodona."""),
        prose("""Times are seconds since 1970. Columns that end in `_json`, and `metadata`, hold
            JSON. Amounts of budgets in dollars are billionths. A column without a default must
            be given."""),
        prose("""Entries of threads are found by their words: on SQLite through the FTS5 table
            `thread_words`, on PostgreSQL through the column `words` of `thread_entries`. Triggers
            keep both up to date, and refuse whatever would change an entry."""),
        table(("table", "holds"), [(f"[`{t.name}`](#{t.name})", TABLES[t.name]) for t in found]),
        *(_table_section(t) for t in found),
    )


def _table_section(told: sa.Table) -> str:
    head = ("column", "SQLite", "PostgreSQL", "default")
    columns = table(head, [_column(column) for column in told.columns])
    rules = "\n".join(f"- {rule}" for rule in _rules(told))
    return f"## {told.name}\n\n{TABLES[told.name]}\n\n{columns}\n\n{rules}"


def _column(column: sa.Column[Any]) -> tuple[str, ...]:
    types = (column.type.compile(dialect=d) for d in (sqlite.dialect(), postgresql.dialect()))
    return f"`{column.name}`", *types, _column_default(column)


def _column_default(column: sa.Column[Any]) -> str:
    if isinstance(column.server_default, sa.DefaultClause):
        written = column.server_default.arg
        return f"`'{written}'`" if isinstance(column.type, sa.Text) else f"`{written}`"
    if column is column.table.autoincrement_column:
        return "the next number"
    return "`NULL`" if column.nullable else ""


def _rules(told: sa.Table) -> Iterator[str]:
    yield f"Primary key: {_names(told.primary_key.columns)}."
    for unique in _sorted(told, sa.UniqueConstraint):
        yield f"Unique: {_names(unique.columns)}."
    for check in _sorted(told, sa.CheckConstraint):
        yield f"Check: `{check.sqltext}`."
    for key in _sorted(told, sa.ForeignKeyConstraint):
        yield _reference(key)
    for index in sorted(told.indexes, key=lambda index: str(index.name)):
        yield _index(index)


def _sorted(told: sa.Table, kind: type[C]) -> list[C]:
    """The constraints of a kind, by name: a table keeps them in no order."""
    found = [constraint for constraint in told.constraints if isinstance(constraint, kind)]
    return sorted(found, key=lambda constraint: str(constraint.name))


def _reference(key: sa.ForeignKeyConstraint) -> str:
    targets = ", ".join(f"`{element.target_fullname}`" for element in key.elements)
    then = {"CASCADE": "is removed with it", "SET NULL": "becomes `NULL` when that is removed"}
    action = then[key.ondelete] if key.ondelete else "keeps it from being removed"
    return f"Reference: {_names(key.columns)} to {targets}; {action}."


def _index(index: sa.Index) -> str:
    sort = "Unique index" if index.unique else "Index"
    where = index.dialect_options["sqlite"]["where"]
    condition = "" if where is None else f", where `{where}`"
    return f"{sort} `{index.name}`: {_names(index.columns)}{condition}."


def _names(columns: Iterable[sa.Column[Any]]) -> str:
    return ", ".join(f"`{column.name}`" for column in columns)
