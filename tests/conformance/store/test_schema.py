"""The database has exactly the tables of `schema.py`, and refuses what the seeds forbid."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import (
    CheckConstraint,
    Connection,
    MetaData,
    create_engine,
    event,
    inspect,
    text,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.pool import NullPool

from dodona.store import migrate, parse_location, schema
from dodona.store.accounts import api_tokens as tokens
from dodona.store.accounts import audit
from dodona.store.billing.budgets import _SELECT_RESERVED_IN_RUN
from dodona.store.conversations.conversations import (
    _SELECT_LANE_HOLDER,
    _SELECT_OPEN_IN_SUBTREE,
)
from dodona.store.conversations.messages import _SELECT_QUESTION
from dodona.store.conversations.nodes import _SELECT_NODE
from dodona.store.conversations.window import _SELECT_PATH
from dodona.store.db.migrate import NEWEST_REVISION, REVISIONS, VERSION_TABLE
from dodona.store.db.statements import SQLITE, Statement
from dodona.store.db.thread_search import FOLD_FROM, FOLD_TO
from dodona.store.key_values import _GLOBALS, _PACKS, _SELECT_PACK_VALUES
from dodona.store.notifications import approvals, notices
from dodona.store.runs import finish as endings
from dodona.store.runs import lanes as places
from dodona.store.runs.runs import (
    _COUNT_OPEN,
    _SELECT_FIRST_OPEN,
    _SELECT_MESSAGES,
    _SELECT_OPEN_RUNS,
    _SELECT_RUNS,
)
from dodona.store.runs.steps import _SELECT_STEPS


def connect(url: str) -> Any:
    """An engine of SQLAlchemy's own, which knows nothing of the store."""
    is_file = not url.startswith("postgresql:")
    place = f"sqlite:///{url}" if is_file else url.replace("postgresql:", "postgresql+psycopg:")
    engine = create_engine(place, poolclass=NullPool)
    if is_file:
        event.listen(engine, "connect", lambda raw, _: raw.execute("PRAGMA foreign_keys = ON"))
    return engine


@pytest.fixture
def database(url: str) -> Iterator[Connection]:
    """A store that has just been made."""
    migrate(parse_location(url))
    with connect(url).connect() as connection:
        yield connection


# -- the same tables -------------------------------------------------------------------------------


SHADOW_TABLES = ("config", "data", "docsize", "idx")  # of FTS5


def told(connection: Connection) -> dict[str, Any]:
    """All that can be read off a database about its tables."""
    found = inspect(connection)
    tables = sorted(set(found.get_table_names()) - {VERSION_TABLE})
    return {
        table: {
            "columns": {
                c["name"]: (str(c["type"]), c["nullable"], c["default"])
                for c in found.get_columns(table)
            },
            "key": found.get_pk_constraint(table),
            "foreign keys": sorted(found.get_foreign_keys(table), key=str),
            "unique": sorted(found.get_unique_constraints(table), key=str),
            "checks": sorted((c["name"], c["sqltext"]) for c in found.get_check_constraints(table)),
            "indexes": {
                i["name"]: (i["column_names"], i["unique"], _texts(i.get("dialect_options", {})))
                for i in found.get_indexes(table)
            },
        }
        for table in tables
    }


def _texts(options: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in options.items()}


def definitions(connection: Connection) -> dict[str, list[str]]:
    """What SQLite was told to make, word by word in any order: AUTOINCREMENT, WHERE, CASCADE."""
    rows = connection.execute(
        text(
            "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite%'"
        )
    )
    words = {name: sorted(re.findall(r"\w+|[^\w\s\"()]", sql)) for name, sql in rows}
    words.pop(VERSION_TABLE, None)
    return words


def make(connection: Connection) -> None:
    """Make the tables from a copy: making them leaves marks on the constraints of a schema."""
    copy = MetaData(naming_convention=schema.metadata.naming_convention)
    for table in schema.metadata.tables.values():
        table.to_metadata(copy)
    copy.create_all(connection)


# What the schema leaves to the migrations.
SEARCH_TABLES = {"thread_words", *(f"thread_words_{part}" for part in SHADOW_TABLES)}
TRIGGERS = {"audit_same", *(f"thread_entries_{what}" for what in ("added", "gone", "stay", "same"))}


def test_migrations_make_what_the_schema_says(
    database: Connection, url: str, tmp_path: Path
) -> None:
    """Table by table: columns, defaults, keys, checks, indexes with their conditions."""
    made = told(database)
    if database.dialect.name == "sqlite":
        with connect(str(tmp_path / "scratch.db")).begin() as scratch:
            make(scratch)
            said, expected = definitions(database), definitions(scratch)
            assert made.keys() - told(scratch).keys() == SEARCH_TABLES
            assert said.keys() - expected.keys() == SEARCH_TABLES | TRIGGERS
            assert {name: made[name] for name in made.keys() - SEARCH_TABLES} == told(scratch)
            assert {name: said[name] for name in expected} == expected
        return
    assert made["thread_entries"]["columns"].pop("words")[0] == "TSVECTOR"
    assert made["thread_entries"]["indexes"].pop("ix_thread_entries_words")[0] == ["words"]
    database.rollback()
    with database.begin():
        database.execute(text("CREATE SCHEMA scratch"))
        database.execute(text("SET LOCAL search_path = scratch"))
        make(database)
        assert made == told(database)
        database.execute(text("DROP SCHEMA scratch CASCADE"))


def test_postgres_indexes_words_as_queries_fold_them(postgres_url: str) -> None:
    """The migration has the same characters as the code that builds the queries."""
    query = "SELECT generation_expression FROM information_schema.columns WHERE column_name"
    with connect(postgres_url).connect() as connection:
        (expression,) = connection.execute(text(f"{query} = 'words'")).one()
    assert expression.count(f"'{FOLD_FROM}'::text, '{FOLD_TO}'::text") == 2


def test_the_newest_revision_is_alembics_newest() -> None:
    """What `migrate` believes is what the folder of migrations holds."""
    config = Config()
    config.set_main_option("script_location", "dodona.store:migrations")
    scripts = ScriptDirectory.from_config(config)
    assert scripts.get_current_head() == NEWEST_REVISION
    known = [script.revision for script in scripts.walk_revisions()]
    assert tuple(reversed(known)) == REVISIONS


# -- what is refused -------------------------------------------------------------------------------

VALID: dict[str, dict[str, Any]] = {
    "conversations": {"id": 1, "user_id": "ada", "created_at": 0, "updated_at": 0},
    "runs": {"id": 1, "conversation_id": 1, "follows_head": False, "created_at": 0},
    "messages": {
        "id": 1,
        "conversation_id": 1,
        "run_id": 1,
        "ordinal": 0,
        "role": "user",
        "content": "x",
        "token_count": 1,
        "created_at": 0,
    },
    "steps": {
        "run_id": 1,
        "key": "a",
        "leaf": "l",
        "effect": "once",
        "attempt": 1,
        "status": "started",
        "started_at": 0,
    },
    "summaries": {"run_id": 1, "content": "x", "token_count": 1, "created_at": 0},
    "oracle_contexts": {"id": "c", "user_id": "ada", "project_id": "p", "session_start": 0},
    "budgets": {"scope": "s", "period": "p", "unit": "tokens", "ceiling": 1},
    "reservations": {"id": 1, "step_key": "", "attempt": 0, "lines_json": "[]", "created_at": 0},
    "memory_entities": {
        "id": "m",
        "user_id": "ada",
        "entity_type": "fact",
        "subject": "s",
        "predicate": "p",
        "object": "o",
        "learned_at": 0,
        "confidence": 0.5,
    },
    "threads": {
        "id": 1,
        "user_id": "ada",
        "project_id": "p",
        "title": "t",
        "created_at": 0,
        "updated_at": 0,
    },
    "thread_entries": {
        "id": 1,
        "thread_id": 1,
        "author": "user",
        "entry_type": "thought",
        "content": "x",
        "created_at": 0,
    },
    "note_versions": {
        "id": 1,
        "user_id": "ada",
        "project_id": "p",
        "path": "a.md",
        "version": "v",
        "old_version": "",
        "size": 0,
        "stored_bytes": 0,
        "action": "write",
        "author": "oracle",
        "written_at": 1.0,
    },
    "notices": {
        "id": 1,
        "user_id": "ada",
        "project_id": "p",
        "event_type": "e",
        "severity": "info",
        "event_json": "{}",
        "moment": "session",
        "created_at": 0,
    },
    "approvals": {
        "run_id": 1,
        "call_id": "c",
        "user_id": "ada",
        "tool": "t",
        "arguments_json": "{}",
        "reason": "",
        "asked_at": 0,
        "expires_at": 1,
    },
    "tokens": {"id": 1, "user_id": "ada", "label": "", "hash": "h", "created_at": 0},
    "audit": {"id": 1, "at": 0, "kind": "auth", "outcome": "refused", "what": "w"},
}

REFUSED: list[tuple[str, str, dict[str, Any]]] = [
    ("conversations", "user_id", {"user_id": ""}),
    ("runs", "status", {"status": "done"}),
    ("runs", "parent_is_another", {"parent_id": 1}),
    ("runs", "tokens", {"tokens": -1}),
    ("runs", "running_has_owner", {"status": "running"}),
    ("runs", "running_has_owner", {"status": "queued", "owner": "me"}),
    ("runs", "running_has_owner", {"status": "waiting", "owner": "me"}),
    ("messages", "role", {"role": "system"}),
    ("messages", "content", {"content": ""}),
    ("messages", "content", {"content": "", "role": "assistant"}),
    ("messages", "tool_call_id", {"role": "tool"}),
    ("messages", "token_count", {"token_count": 0}),
    ("messages", "ordinal", {"ordinal": -1}),
    ("steps", "effect", {"effect": "twice"}),
    ("steps", "status", {"status": "running"}),
    ("summaries", "content", {"content": ""}),
    ("summaries", "token_count", {"token_count": 0}),
    ("oracle_contexts", "status", {"status": "open"}),
    ("oracle_contexts", "token_budget", {"token_budget": 3999}),
    ("oracle_contexts", "token_budget", {"token_budget": 128_001}),
    ("oracle_contexts", "tokens", {"tokens_used": 17_601}),
    ("oracle_contexts", "tokens", {"tokens_used": 140_801, "token_budget": 128_000}),
    ("oracle_contexts", "tokens", {"tokens_used": -1}),
    ("budgets", "unit", {"unit": "euros"}),
    ("budgets", "amounts", {"ceiling": -1}),
    ("budgets", "amounts", {"used": -1}),
    ("budgets", "amounts", {"held": -1}),
    ("reservations", "status", {"status": "lost"}),
    ("memory_entities", "entity_type", {"entity_type": "opinion"}),
    ("memory_entities", "confidence", {"confidence": 1.01}),
    ("memory_entities", "confidence", {"confidence": -0.01}),
    ("threads", "title", {"title": ""}),
    ("thread_entries", "author", {"author": "eve"}),
    ("thread_entries", "entry_type", {"entry_type": "rumour"}),
    ("thread_entries", "content", {"content": ""}),
    ("note_versions", "action", {"action": "read"}),
    ("notices", "severity", {"severity": "fatal"}),
    ("notices", "moment", {"moment": "never"}),
    ("notices", "due_at", {"moment": "time"}),
    ("notices", "due_at", {"due_at": 1}),
    ("notices", "tool", {"moment": "tool"}),
    ("notices", "tool", {"tool": "t"}),
    ("notices", "condition", {"moment": "condition"}),
    ("notices", "condition", {"condition": "true"}),
    ("approvals", "decision", {"decision": "maybe", "decided_at": 1, "decided_by": "ada"}),
    ("approvals", "decided", {"decision": "approved", "decided_by": "ada"}),
    ("approvals", "decided", {"decision": "approved", "decided_at": 1}),
    ("approvals", "decided", {"decided_at": 1, "decided_by": "ada"}),
    ("tokens", "budget_tokens", {"budget_tokens": -1}),
    ("tokens", "budget_nanos", {"budget_nanos": -1}),
    ("tokens", "budget_period", {"budget_period": "week"}),
    ("audit", "kind", {"kind": "gossip"}),
    ("audit", "outcome", {"outcome": "maybe"}),
    ("audit", "what", {"what": ""}),
    ("audit", "more", {"more": -1}),
]

ALLOWED: list[tuple[str, dict[str, Any]]] = [
    ("messages", {"role": "tool", "content": "", "tool_call_id": "c"}),
    ("messages", {"role": "assistant"}),
    ("oracle_contexts", {"token_budget": 4000, "tokens_used": 4400}),
    ("oracle_contexts", {"token_budget": 128_000, "tokens_used": 140_800}),
    ("oracle_contexts", {"tokens_used": 17_600, "status": "suspended"}),
    ("memory_entities", {"confidence": 0, "entity_type": "relationship"}),
    ("memory_entities", {"confidence": 1, "entity_type": "attribute"}),
    *[("thread_entries", {"author": who}) for who in ("user", "claude", "oracle", "librarian")],
    *[
        ("thread_entries", {"entry_type": kind})
        for kind in ("thought", "decision", "research", "insight")
    ],
    *[("runs", {"status": status}) for status in ("queued", "waiting", "succeeded", "cancelled")],
    ("runs", {"status": "running", "owner": "me"}),
    ("notices", {"moment": "time", "due_at": 1}),
    ("notices", {"moment": "tool", "tool": "t"}),
    ("notices", {"moment": "condition", "condition": "true"}),
    *[
        ("approvals", {"decision": decision, "decided_at": 1, "decided_by": "ada"})
        for decision in ("approved", "denied", "expired")
    ],
    ("approvals", {"decision": "pending"}),
    *[("audit", {"kind": kind}) for kind in ("auth", "denied", "limit", "budget", "admin")],
]

NEEDS = {"runs": ["conversations"], "thread_entries": ["threads"]}
NEEDS |= {
    table: ["conversations", "runs"] for table in ("messages", "steps", "summaries", "approvals")
}


def add(connection: Connection, table: str, **values: Any) -> None:
    row = {**VALID[table], **values}
    connection.execute(schema.metadata.tables[table].insert().values(row))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("schema") / "dodona.db")
    migrate(parse_location(path))
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def empty(request: pytest.FixtureRequest) -> Iterator[Connection]:
    """An empty store, in a transaction that is never committed."""
    name = {"sqlite": "file", "postgresql": "postgres_url"}[request.param]
    with connect(request.getfixturevalue(name)).connect() as connection:
        yield connection
        connection.rollback()


@pytest.mark.parametrize(
    ("table", "check", "values"),
    REFUSED,
    ids=[f"{table}-{'-'.join(map(str, values.values()))}" for table, _, values in REFUSED],
)
def test_what_the_seeds_forbid_is_refused(
    empty: Connection, table: str, check: str, values: dict[str, Any]
) -> None:
    """By the database itself, whoever writes to it."""
    for needed in NEEDS.get(table, ()):
        add(empty, needed)
    with pytest.raises(IntegrityError, match=rf"\bck_{table}_{check}\b"):
        add(empty, table, **values)


@pytest.mark.parametrize(("table", "values"), ALLOWED, ids=str)
def test_what_the_seeds_allow_is_taken(
    empty: Connection, table: str, values: dict[str, Any]
) -> None:
    """Up to the bound, bound included."""
    for needed in NEEDS.get(table, ()):
        add(empty, needed)
    add(empty, table, **values)


def test_every_check_is_tried() -> None:
    """A new check comes with a row that it refuses."""
    named = {
        constraint.name
        for table in schema.metadata.tables.values()
        for constraint in (*table.constraints, *(c for col in table.c for c in col.constraints))
        if isinstance(constraint, CheckConstraint)
    }
    assert named == {f"ck_{table}_{check}" for table, check, _ in REFUSED}


UNIQUE: list[tuple[str, dict[str, Any]]] = [
    ("oracle_contexts", {"id": "other"}),  # one context per user and project
    ("messages", {"id": 2}),  # one message at each place of a run
    ("steps", {}),
    ("budgets", {}),
    ("approvals", {}),  # one for each call
    ("tokens", {"id": 2}),  # one of each text
]


@pytest.mark.parametrize(("table", "values"), UNIQUE, ids=str)
def test_what_there_is_one_of(empty: Connection, table: str, values: dict[str, Any]) -> None:
    for needed in NEEDS.get(table, ()):
        add(empty, needed)
    add(empty, table)
    with pytest.raises(IntegrityError):
        add(empty, table, **values)


@pytest.mark.parametrize("first", ["running", "waiting"])
@pytest.mark.parametrize("then", ["running", "waiting"])
def test_a_lane_has_one_holder(empty: Connection, first: str, then: str) -> None:
    """The index says so, whatever the code does; other conversations have their own."""
    owners = {"running": "me", "waiting": None}
    for number in (1, 2):
        add(empty, "conversations", id=number)
        add(empty, "runs", id=number, conversation_id=number, status=first, owner=owners[first])
    add(empty, "runs", id=3)
    with pytest.raises(IntegrityError):
        add(empty, "runs", id=4, status=then, owner=owners[then])


@pytest.mark.parametrize(
    ("table", "values"),
    [
        ("runs", {"id": 3, "conversation_id": 2, "parent_id": 1}),
        ("runs", {"id": 3, "conversation_id": 9}),
        ("runs", {"id": 3, "parent_id": 9}),
        ("messages", {"conversation_id": 2}),
        ("messages", {"run_id": 9}),
        ("steps", {"run_id": 9}),
        ("summaries", {"run_id": 9}),
        ("thread_entries", {"thread_id": 9}),
        ("notices", {"run_id": 9}),
        ("approvals", {"run_id": 9}),
    ],
    ids=str,
)
def test_nothing_points_into_another_conversation(
    empty: Connection, table: str, values: dict[str, Any]
) -> None:
    """Or nowhere: a parent, a message, a step belong to what is there."""
    for number in (1, 2):
        add(empty, "conversations", id=number)
        add(empty, "runs", id=number, conversation_id=number)
    with pytest.raises(IntegrityError):
        add(empty, table, **values)


@pytest.mark.parametrize("key", ["k", None])
def test_a_key_of_a_notice_is_one_of_its_users(empty: Connection, key: str | None) -> None:
    """Another user may have it too; without a key there may be many alike."""
    add(empty, "notices", id=1, key=key)
    add(empty, "notices", id=2, key=key, user_id="bob")
    if key is None:
        add(empty, "notices", id=3, key=key)
        return
    with pytest.raises(IntegrityError):
        add(empty, "notices", id=3, key=key, project_id="q", delivered_at=1)


def test_a_head_is_a_run(empty: Connection) -> None:
    """One that there is; that it is the conversation's own, `dodona db check` looks after."""
    add(empty, "conversations", id=1)
    add(empty, "runs", id=1, conversation_id=1)
    move = schema.conversations.update().where(schema.conversations.c.id == 1)
    empty.execute(move.values(head_id=1))
    with pytest.raises(IntegrityError):
        empty.execute(move.values(head_id=2))


# -- indexes ---------------------------------------------------------------------------------------

QUERIES: dict[str, tuple[Statement, str]] = {
    "the lane": (_SELECT_LANE_HOLDER, "uq_runs_lane"),
    "the first that is open": (_SELECT_FIRST_OPEN, "ix_runs_open"),
    "what a user has under way": (_COUNT_OPEN, "ix_runs_open_user"),
    "a token": (tokens._SELECT_TOKEN_BY_HASH, "sqlite_autoindex_tokens"),
    "the audit log": (audit._SELECT_PAGE[False], "audit"),
    "a kind of the audit log": (audit._SELECT_PAGE[True], "ix_audit_kind"),
    "what is old in the audit log": (audit._DELETE_OLD, "ix_audit_at"),
    "the window": (_SELECT_PATH, "INTEGER PRIMARY KEY"),
    "the messages of a run": (
        _SELECT_MESSAGES,
        "uq_messages_run_id_ordinal|sqlite_autoindex_messages",
    ),
    "a node": (_SELECT_NODE, "INTEGER PRIMARY KEY"),
    "what is open below a node": (_SELECT_OPEN_IN_SUBTREE, "ix_runs_parent"),
    "the steps of a run": (_SELECT_STEPS, "sqlite_autoindex_steps"),
    "what a run holds": (_SELECT_RESERVED_IN_RUN, "ix_reservations_\\w+"),
    "a place": (places._SELECT_TARGET, "ix_runs_open"),
    "the context of a run that ends": (
        endings._UPDATE_CONTEXT,
        "ix_oracle_contexts_conversation_id",
    ),
    "a user's runs": (_SELECT_RUNS, "ix_runs_user_id"),
    "what is open in a context": (_SELECT_OPEN_RUNS, "ix_runs_open"),
    "the first message of a run": (_SELECT_QUESTION, "sqlite_autoindex_messages"),
    "does a notice wait": (places._SELECT_TARGET, "ix_notices_pending"),
    "how much waits to be told": (notices._COUNT_PENDING, "ix_notices_pending"),
    "what a run is to tell": (notices._SELECT_DUE_SOON, "ix_notices_pending"),
    "a notice by its key": (notices._SELECT_NOTICE_BY_KEY, "uq_notices_key"),
    "a user's notices": (notices._SELECT_NOTICES, "ix_notices_user_id"),
    "the state of packs": (_SELECT_PACK_VALUES, "sqlite_autoindex_plugin_state"),
    "the keys of a pack": (_PACKS.select_keys, "sqlite_autoindex_plugin_state"),
    "a global key": (_GLOBALS.select_value, "sqlite_autoindex_tree_globals"),
    "an approval": (approvals._SELECT_APPROVAL, "sqlite_autoindex_approvals"),
    "what waits for a decision": (approvals._SELECT_PENDING, "ix_approvals_pending"),
}


@pytest.mark.parametrize(("query", "index"), QUERIES.values(), ids=QUERIES)
def test_no_hot_query_reads_a_whole_table(file: str, query: Statement, index: str) -> None:
    """SQLite finds the partial indexes too: conditions are written out, not given."""
    sql = query.sql(SQLITE)
    with connect(file).connect() as connection:
        rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", (1,) * sql.count("?"))
        plan = [row[3] for row in rows]
    scanned = [line for line in plan if re.match(r"SCAN (\w+)", line)]
    tables = set(schema.metadata.tables)
    assert [line for line in scanned if line.split()[1] in tables] == [], plan
    assert any(re.search(index, line) for line in plan), plan


# The index strategy of seed 003; a message's `session_key` is its conversation here.
INDEXED = {
    "sessions": ["agent_id", "updated_at"],
    "messages": ["conversation_id, role", "conversation_id, created_at"],
    "memory_entities": ["user_id, subject", "predicate", "session_key", "learned_at"],
    "token_records": ["timestamp", "session_key", "agent_id", "provider"],
}


def test_the_seeds_indexes_exist(database: Connection) -> None:
    """Each index that seed 003 names begins with its columns."""
    found = inspect(database)
    for table, expected in INDEXED.items():
        indexes = [", ".join(map(str, i["column_names"])) for i in found.get_indexes(table)]
        missing = [names for names in expected if not any(i.startswith(names) for i in indexes)]
        assert missing == [], (table, indexes)
