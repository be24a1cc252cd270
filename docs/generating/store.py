"""Generates store.md from the tables of the store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from dodona.store import schema
from dodona.store.db.migrate import NEWEST_REVISION
from generating.writing import page, prose, table

C = TypeVar("C", bound=sa.Constraint)


TABLES: Mapping[str, str] = {
    "projects": "The projects of users, with the folders of their notes and code.",
    "conversations": "Conversations, each a tree of runs. The next run follows the head.",
    "runs": "The nodes of conversations: a question, its answer, and the process that runs it.",
    "messages": "The messages of a run, in order.",
    "pins": "The initial inputs of runs: trees, prompts, tools, settings. Shared by runs with the "
    "same inputs.",
    "steps": "The journal of a run: the input and the result of each step.",
    "summaries": "Summaries, each of a run and all runs before it.",
    "oracle_contexts": "The current conversation of a user in a project.",
    "sessions": "The current conversation of a peer on a channel, by session key.",
    "budgets": "The ceiling, usage and reservations of each budget in a period.",
    "reservations": "The maximum usage of each model call in progress, until the actual usage is "
    "known.",
    "token_records": "The usage records, one per model call.",
    "memory_entities": "Facts. An outdated fact is superseded, not deleted.",
    "threads": "Threads: logs of thoughts and decisions in a project.",
    "thread_entries": "The entries of threads.",
    "note_marks": "The untrusted sources of blocks of notes, by a hash of the block. A note that "
    "contains such a block is marked.",
    "note_versions": "The versions of notes that Dodona replaced or wrote, and moves of notes.",
    "notices": "Pending notices for an agent and its user.",
    "approvals": "Tool calls that require approval, with the decisions.",
    "plugin_state": "The state that rule packs store for a user.",
    "tree_globals": "The global blackboard keys of an agent's trees, by user and project.",
    "settings": "The settings of users.",
    "tokens": "Access tokens, hashed.",
    "audit": "The audit log of denied requests and administrative changes. Append-only.",
}


def store_page() -> str:
    """Return the text of store.md."""
    tables = list(schema.metadata.tables.values())
    return page(
        "# Store schema",
        prose(f"""The tables of the store, which are the same in SQLite and PostgreSQL. The schema
            revision is `{NEWEST_REVISION}`. [The store](../explanation/store.md) explains how they
            are used. Read them, but do not write to them: Dodona enforces invariants between rows
            that the schema does not express."""),
        prose("""Times are seconds since 1970. `metadata` and columns that end in `_json` contain
            JSON. Budget amounts in dollars are in billionths. A column without a default is
            required."""),
        prose("""Thread entries have a full-text index: in SQLite the FTS5 table `thread_words`, in
            PostgreSQL the column `words` of `thread_entries`. Triggers update both, and reject
            changes to existing entries."""),
        table(
            ("table", "contents"), [(f"[`{t.name}`](#{t.name})", TABLES[t.name]) for t in tables]
        ),
        *(_table_section(each) for each in tables),
    )


def _table_section(sql_table: sa.Table) -> str:
    head = ("column", "SQLite", "PostgreSQL", "default")
    columns = table(head, [_column(column) for column in sql_table.columns])
    rules = "\n".join(f"- {rule}" for rule in _rules(sql_table))
    return f"## {sql_table.name}\n\n{TABLES[sql_table.name]}\n\n{columns}\n\n{rules}"


def _column(column: sa.Column[Any]) -> tuple[str, ...]:
    types = (column.type.compile(dialect=d) for d in (sqlite.dialect(), postgresql.dialect()))
    return f"`{column.name}`", *types, _column_default(column)


def _column_default(column: sa.Column[Any]) -> str:
    if isinstance(column.server_default, sa.DefaultClause):
        value = column.server_default.arg
        return f"`'{value}'`" if isinstance(column.type, sa.Text) else f"`{value}`"
    if column is column.table.autoincrement_column:
        return "auto-increment"
    return "`NULL`" if column.nullable else ""


def _rules(sql_table: sa.Table) -> Iterator[str]:
    yield f"Primary key: {_names(sql_table.primary_key.columns)}."
    for unique in _sorted(sql_table, sa.UniqueConstraint):
        yield f"Unique: {_names(unique.columns)}."
    for check in _sorted(sql_table, sa.CheckConstraint):
        yield f"Check: `{check.sqltext}`."
    for key in _sorted(sql_table, sa.ForeignKeyConstraint):
        yield _reference(key)
    for index in sorted(sql_table.indexes, key=lambda index: str(index.name)):
        yield _index(index)


def _sorted(sql_table: sa.Table, kind: type[C]) -> list[C]:
    """Return the constraints of a kind by name: SQLAlchemy keeps them in a set."""
    constraints = [each for each in sql_table.constraints if isinstance(each, kind)]
    return sorted(constraints, key=lambda constraint: str(constraint.name))


def _reference(key: sa.ForeignKeyConstraint) -> str:
    targets = ", ".join(f"`{element.target_fullname}`" for element in key.elements)
    action = f"on delete {key.ondelete.lower()}" if key.ondelete else "no delete while referenced"
    return f"Reference: {_names(key.columns)} to {targets}; {action}."


def _index(index: sa.Index) -> str:
    kind = "Unique index" if index.unique else "Index"
    where = index.dialect_options["sqlite"]["where"]
    condition = "" if where is None else f", where `{where}`"
    return f"{kind} `{index.name}`: {_names(index.columns)}{condition}."


def _names(columns: Iterable[sa.Column[Any]]) -> str:
    return ", ".join(f"`{column.name}`" for column in columns)
