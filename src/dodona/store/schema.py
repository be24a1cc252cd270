"""The tables, the same for SQLite and PostgreSQL. Migrations create them.

A run's parent is in the same conversation, which composite keys guarantee. It is set once, to a run
that has ended, so there are no cycles.

Times are seconds since 1970. Columns ending in `_json`, and `metadata`, hold JSON text.
`marks_json` are the untrusted sources of a row's text; NULL if there are none.

Only migrations create the full-text search in thread entries, and the triggers that make thread
entries and the audit log append-only: they differ between the databases.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from dodona.core.domain.audit import AUDIT_KINDS, AUDIT_OUTCOMES

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite generates ids only for a column of type INTEGER.
Id = BigInteger().with_variant(Integer, "sqlite")
# Not jsonb, which reorders keys, rounds numbers and rejects NUL: both databases return the exact
# text. To query inside, write `metadata::jsonb`.
Json = Text


def _time_columns(*names: str) -> list[Column[float]]:
    return [Column(name, Double, nullable=False) for name in names]


def _in_list(column: str, values: tuple[str, ...]) -> str:
    quoted = ", ".join(f"'{value}'" for value in values)
    return f"{column} IN ({quoted})"


def _one_of(column: str, *values: str) -> CheckConstraint:
    return CheckConstraint(_in_list(column, values), name=column)


def _partial(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    condition = text(where)
    return Index(name, *columns, unique=unique, sqlite_where=condition, postgresql_where=condition)


projects = Table(
    "projects",
    metadata,
    Column("user_id", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("vault_path", Text),
    Column("code_paths_json", Json, nullable=False, server_default="[]"),
    Column("settings_json", Json, nullable=False, server_default="{}"),
    *_time_columns("created_at"),
    PrimaryKeyConstraint("user_id", "id"),
)

conversations = Table(
    "conversations",
    metadata,
    Column("id", Id, primary_key=True),
    Column("user_id", Text, nullable=False),
    Column("project_id", Text, nullable=False, server_default="default"),
    Column("agent_id", Text, nullable=False, server_default="oracle"),
    Column("title", Text, nullable=False, server_default=""),
    Column("head_id", Id),
    *_time_columns("created_at", "updated_at"),
    CheckConstraint("user_id <> ''", name="user_id"),
    # Without the conversation's id, unlike elsewhere: in SQLite, a column of a foreign key does not
    # autoincrement, and ids of deleted rows would be reused.
    ForeignKeyConstraint(["head_id"], ["runs.id"], name="fk_head", use_alter=True),
    Index("ix_conversations_user_id", "user_id", "updated_at"),
    sqlite_autoincrement=True,
)

_LANE_HOLDING = ("running", "waiting")
_ENDED = ("succeeded", "failed", "cancelled")

# Conditions are literal, not parameters: otherwise partial indexes are not used.
HOLDS_LANE = text(_in_list("runs.status", _LANE_HOLDING))
IS_OPEN = text(_in_list("runs.status", ("queued", *_LANE_HOLDING)))
IS_QUEUED = text("runs.status = 'queued'")
IS_RESERVED = text("reservations.status = 'held'")
IS_UNDELIVERED = text("notices.delivered_at IS NULL")
IS_UNDECIDED = text("approvals.decision = 'pending'")

runs = Table(
    "runs",
    metadata,
    Column("id", Id, primary_key=True),
    Column("conversation_id", Id, nullable=False),
    # Copied from the conversation, so that lists of a user's runs read no other rows.
    Column("user_id", Text, nullable=False, server_default=""),
    Column("parent_id", Id),
    # The extent of the run's window: its oldest run, the number of runs, their tokens.
    Column("window_from", Id),
    Column("window_runs", Integer, nullable=False, server_default="0"),
    Column("window_tokens", Integer, nullable=False, server_default="0"),
    Column("follows_head", Boolean, nullable=False),
    Column("session_key", Text),
    Column("status", Text, nullable=False, server_default="queued"),
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("owner", Text),
    Column("pins_hash", Text),
    Column("origin", Text, nullable=False, server_default="user"),
    Column("label", Text),
    Column("tokens", Integer, nullable=False, server_default="0"),
    Column("error_json", Json),
    *_time_columns("created_at"),
    Column("started_at", Double),
    Column("ended_at", Double),
    Column("cancel_requested_at", Double),
    # The digest of all messages up to its end: a client that sends its history continues here.
    Column("said_digest", Text),
    # The token of the request, which pays. No foreign key: tokens are never deleted.
    Column("token_id", Id),
    Column("finish", Text),
    Column("termination_reason", Text),
    _one_of("status", "queued", *_LANE_HOLDING, *_ENDED),
    CheckConstraint("parent_id <> id", name="parent_is_another"),
    CheckConstraint("tokens >= 0", name="tokens"),
    CheckConstraint("(status = 'running') = (owner IS NOT NULL)", name="running_has_owner"),
    UniqueConstraint("conversation_id", "id"),
    ForeignKeyConstraint(
        ["conversation_id"], ["conversations.id"], ondelete="CASCADE", name="fk_runs_conversation"
    ),
    ForeignKeyConstraint(
        # No cascade: SQLite nests one per generation, and stops at a thousand.
        ["conversation_id", "parent_id"],
        ["runs.conversation_id", "runs.id"],
        name="fk_runs_parent",
    ),
    Index("ix_runs_parent", "conversation_id", "parent_id"),
    # The lane: one active run per conversation, across all processes.
    _partial(
        "uq_runs_lane",
        "conversation_id",
        unique=True,
        where=_in_list("status", _LANE_HOLDING),
    ),
    # The status is a column too: otherwise SQLite scans all runs.
    _partial(
        "ix_runs_open",
        *("conversation_id", "status", "id"),
        where=_in_list("status", ("queued", *_LANE_HOLDING)),
    ),
    # The unfinished runs of a user.
    _partial("ix_runs_open_user", "user_id", where=_in_list("status", ("queued", *_LANE_HOLDING))),
    Index("ix_runs_ended_at", "ended_at"),
    Index("ix_runs_user_id", "user_id", "id"),
    _partial("ix_runs_said_digest", "user_id", "said_digest", where="said_digest IS NOT NULL"),
    sqlite_autoincrement=True,
)

messages = Table(
    "messages",
    metadata,
    Column("id", Id, primary_key=True),
    Column("conversation_id", Id, nullable=False),
    Column("run_id", Id, nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("role", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("tool_call_id", Text),
    Column("metadata", Json),
    Column("raw", Text),
    Column("raw_provider", Text),
    Column("token_count", Integer, nullable=False),
    Column("key_insight", Text),
    Column("mentioned_symbols_json", Json, nullable=False, server_default="[]"),
    Column("mentioned_files_json", Json, nullable=False, server_default="[]"),
    *_time_columns("created_at"),
    _one_of("role", "user", "assistant", "tool"),
    CheckConstraint("role = 'tool' OR content <> ''", name="content"),
    CheckConstraint("role <> 'tool' OR tool_call_id IS NOT NULL", name="tool_call_id"),
    CheckConstraint("token_count > 0", name="token_count"),
    CheckConstraint("ordinal >= 0", name="ordinal"),
    UniqueConstraint("run_id", "ordinal"),
    ForeignKeyConstraint(
        ["conversation_id", "run_id"],
        ["runs.conversation_id", "runs.id"],
        ondelete="CASCADE",
        name="fk_messages_run",
    ),
    Index("ix_messages_conversation_id", "conversation_id", "run_id"),
    # The messages of one session by role and by time, as seed 003 asks for. With the conversation
    # first, an insert touches the pages of its own conversation.
    Index("ix_messages_role", "conversation_id", "role"),
    Index("ix_messages_created_at", "conversation_id", "created_at"),
)

# Snapshots with which runs start: trees, prompts, tools, settings. Many runs share one.
pins = Table(
    "pins",
    metadata,
    Column("hash", Text, primary_key=True),
    Column("content", LargeBinary, nullable=False),
    *_time_columns("created_at"),
)

steps = Table(
    "steps",
    metadata,
    Column("run_id", Id, ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("key", Text, nullable=False),
    Column("leaf", Text, nullable=False),
    Column("effect", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("request_hash", Text, nullable=False, server_default=""),
    Column("status", Text, nullable=False),
    Column("payload", Text),
    *_time_columns("started_at"),
    Column("ended_at", Double),
    PrimaryKeyConstraint("run_id", "key"),
    _one_of("effect", "none", "keyed", "once"),
    _one_of("status", "started", "succeeded", "failed"),
)

summaries = Table(
    "summaries",
    metadata,
    Column("run_id", Id, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("content", Text, nullable=False),
    Column("token_count", Integer, nullable=False),
    Column("model", Text),
    Column("marks_json", Json),  # NULL without marks
    Column("is_private", Boolean, nullable=False, server_default=text("false")),
    *_time_columns("created_at"),
    CheckConstraint("content <> ''", name="content"),
    CheckConstraint("token_count > 0", name="token_count"),
)

oracle_contexts = Table(
    "oracle_contexts",
    metadata,
    Column("id", Text, primary_key=True),
    Column("user_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("conversation_id", Id, ForeignKey("conversations.id", ondelete="SET NULL")),
    *_time_columns("session_start"),
    Column("last_activity", Double),
    Column("last_model", Text),
    Column("token_budget", Integer, nullable=False, server_default="16000"),
    Column("tokens_used", Integer, nullable=False, server_default="0"),
    Column("key_decisions_json", Json, nullable=False, server_default="[]"),
    Column("mentioned_symbols", Text),
    Column("mentioned_files", Text),
    Column("status", Text, nullable=False, server_default="active"),
    Column("compression_count", Integer, nullable=False, server_default="0"),
    Column("marks_json", Json),  # of decisions, symbols and files; NULL without marks
    _one_of("status", "active", "suspended", "closed"),
    CheckConstraint("token_budget BETWEEN 4000 AND 128000", name="token_budget"),
    CheckConstraint("tokens_used >= 0 AND tokens_used * 10 <= token_budget * 11", name="tokens"),
    UniqueConstraint("user_id", "project_id"),
    Index("ix_oracle_contexts_last_activity", "last_activity"),
    Index("ix_oracle_contexts_conversation_id", "conversation_id"),
)

sessions = Table(
    "sessions",
    metadata,
    Column("user_id", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("agent_id", Text, nullable=False),
    Column("conversation_id", Id, ForeignKey("conversations.id", ondelete="SET NULL")),
    Column("message_count", BigInteger, nullable=False, server_default="0"),
    Column("input_tokens", BigInteger, nullable=False, server_default="0"),
    Column("output_tokens", BigInteger, nullable=False, server_default="0"),
    *_time_columns("created_at", "updated_at"),
    # Per user: equal keys of two users are two sessions.
    PrimaryKeyConstraint("user_id", "key"),
    Index("ix_sessions_agent_id", "agent_id"),
    Index("ix_sessions_updated_at", "updated_at"),
    Index("ix_sessions_conversation_id", "conversation_id"),
)

# Amounts are integers, tokens or billionths of a dollar, so that sums are exact.
budgets = Table(
    "budgets",
    metadata,
    Column("scope", Text, nullable=False),
    Column("period", Text, nullable=False),
    Column("unit", Text, nullable=False),
    Column("ceiling", BigInteger, nullable=False),
    Column("used", BigInteger, nullable=False, server_default="0"),
    Column("held", BigInteger, nullable=False, server_default="0"),
    PrimaryKeyConstraint("scope", "period", "unit"),
    _one_of("unit", "tokens", "usd"),
    CheckConstraint("ceiling >= 0 AND used >= 0 AND held >= 0", name="amounts"),
)

reservations = Table(
    "reservations",
    metadata,
    Column("id", Id, primary_key=True),
    Column("run_id", Id, ForeignKey("runs.id", ondelete="SET NULL")),
    Column("step_key", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("owner", Text),  # of a reservation outside any run
    Column("lines_json", Text, nullable=False),
    Column("if_cut_json", Text),  # the record to write if a crash interrupts the call
    Column("status", Text, nullable=False, server_default="held"),
    Column("estimated", Boolean, nullable=False, server_default=text("false")),
    *_time_columns("created_at"),
    Column("settled_at", Double),
    _one_of("status", "held", "settled"),
    Index("ix_reservations_run_id", "run_id", "status"),
)

token_records = Table(
    "token_records",
    metadata,
    Column("id", Id, primary_key=True),
    *_time_columns("timestamp"),
    Column("user_id", Text, nullable=False),
    Column("session_key", Text),
    Column("agent_id", Text, nullable=False),
    Column("run_id", Id),  # no foreign key: the record outlives the run
    Column("provider", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("cache_read_tokens", BigInteger, nullable=False, server_default="0"),
    Column("cache_write_tokens", BigInteger, nullable=False, server_default="0"),
    Column("reasoning_tokens", BigInteger, nullable=False, server_default="0"),
    Column("cost_estimate_usd", Double),  # NULL is unknown, not zero
    Column("estimated", Boolean, nullable=False, server_default=text("false")),
    Column("usage_json", Json),
    Index("ix_token_records_timestamp", "timestamp"),
    Index("ix_token_records_session_key", "session_key"),
    Index("ix_token_records_agent_id", "agent_id", "timestamp"),
    Index("ix_token_records_provider", "provider"),
    Index("ix_token_records_run_id", "run_id"),
    Index("ix_token_records_user_id", "user_id", "timestamp"),
)

memory_entities = Table(
    "memory_entities",
    metadata,
    Column("id", Text, primary_key=True),
    Column("user_id", Text, nullable=False),
    Column("entity_type", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("predicate", Text, nullable=False),
    Column("object", Text, nullable=False),
    Column("session_key", Text),
    Column("conversation_id", Id, ForeignKey("conversations.id", ondelete="CASCADE")),
    *_time_columns("learned_at"),
    Column("superseded_at", Double),
    Column("superseded_by", Text, ForeignKey("memory_entities.id", ondelete="SET NULL")),
    Column("confidence", Double, nullable=False),
    _one_of("entity_type", "fact", "relationship", "attribute"),
    CheckConstraint("confidence BETWEEN 0 AND 1", name="confidence"),
    Index("ix_memory_entities_subject", "user_id", "subject", "predicate"),
    Index("ix_memory_entities_predicate", "predicate"),
    Index("ix_memory_entities_session_key", "session_key"),
    Index("ix_memory_entities_learned_at", "learned_at"),
    Index("ix_memory_entities_conversation_id", "conversation_id"),
    Index("ix_memory_entities_superseded_by", "superseded_by"),
    _partial(
        "ix_memory_entities_active",
        "user_id",
        "subject",
        where="superseded_at IS NULL",
    ),
)

threads = Table(
    "threads",
    metadata,
    Column("id", Id, primary_key=True),
    Column("user_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("title", Text, nullable=False),
    # The normalised title, unique. NULL if an older thread has the same one.
    Column("title_key", Text),
    *_time_columns("created_at", "updated_at"),
    Column("marks_json", Json),  # of the title
    CheckConstraint("title <> ''", name="title"),
    Index("ix_threads_user_id", "user_id", "project_id", "updated_at"),
    Index("uq_threads_title_key", "user_id", "project_id", "title_key", unique=True),
    sqlite_autoincrement=True,
)

thread_entries = Table(
    "thread_entries",
    metadata,
    Column("id", Id, primary_key=True),
    Column("thread_id", Id, ForeignKey("threads.id", ondelete="CASCADE"), nullable=False),
    # Copied from the thread, so that a search finds entries by it.
    Column("title", Text, nullable=False, server_default=""),
    Column("author", Text, nullable=False),
    Column("entry_type", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("key", Text),  # idempotency key
    *_time_columns("created_at"),
    Column("marks_json", Json),
    _one_of("author", "user", "claude", "oracle", "librarian"),
    _one_of("entry_type", "thought", "decision", "research", "insight"),
    CheckConstraint("content <> ''", name="content"),
    Index("ix_thread_entries_thread_id", "thread_id", "id"),
    _partial("uq_thread_entries_key", "key", "thread_id", unique=True, where="key IS NOT NULL"),
)

# Marked blocks of notes. A change of marks is a new row, so that readers find it by its id.
note_marks = Table(
    "note_marks",
    metadata,
    Column("id", Id, primary_key=True),
    Column("user_id", Text, nullable=False),
    Column("folder", Text, nullable=False),  # of the vault
    Column("block", BigInteger, nullable=False),
    Column("marks_json", Json, nullable=False),
    *_time_columns("created_at"),
    Index("ix_note_marks_user_id", "user_id", "id"),
    Index("ix_note_marks_folder", "folder", "id"),
    Index("uq_note_marks_block", "user_id", "folder", "block", unique=True),
    sqlite_autoincrement=True,
)

# Versions of notes. `version` and `old_version` are hashes, empty if there is no note. A move has
# no content: the move log, a file, can undo it. `undoes` is the row that an undo reverts.
note_versions = Table(
    "note_versions",
    metadata,
    Column("id", Id, primary_key=True),
    Column("user_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("path", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("old_version", Text, nullable=False),
    Column("content", LargeBinary),  # compressed
    Column("size", Integer, nullable=False),
    Column("stored_bytes", Integer, nullable=False),
    Column("action", Text, nullable=False),
    Column("author", Text, nullable=False),
    Column("from_path", Text),
    Column("move_id", BigInteger),
    Column("undoes", BigInteger),
    *_time_columns("written_at"),
    _one_of("action", "external", "write", "index", "move", "undo"),
    Index("ix_note_versions_path", "user_id", "project_id", "path", "id"),
    # Covers the sum of the sizes of a project.
    Index("ix_note_versions_project", "user_id", "project_id", "id", "stored_bytes"),
    Index("ix_note_versions_written_at", "written_at", "id"),
    sqlite_autoincrement=True,
)

notices = Table(
    "notices",
    metadata,
    Column("id", Id, primary_key=True),
    Column("user_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("run_id", Id, ForeignKey("runs.id", ondelete="CASCADE")),
    # Copied from the event, for queries by hand.
    Column("event_type", Text, nullable=False),
    Column("severity", Text, nullable=False),
    Column("event_json", Json, nullable=False),
    Column("moment", Text, nullable=False),
    Column("due_at", Double),
    Column("tool", Text, nullable=False, server_default=""),
    Column("condition", Text, nullable=False, server_default=""),
    Column("key", Text),  # idempotency key
    *_time_columns("created_at"),
    Column("delivered_at", Double),
    _one_of("severity", "debug", "info", "warning", "error", "critical"),
    _one_of("moment", "time", "tool", "condition", "session"),
    CheckConstraint("(moment = 'time') = (due_at IS NOT NULL)", name="due_at"),
    CheckConstraint("(moment = 'tool') = (tool <> '')", name="tool"),
    CheckConstraint("(moment = 'condition') = (condition <> '')", name="condition"),
    Index("ix_notices_run_id", "run_id"),
    Index("ix_notices_user_id", "user_id", "id"),
    _partial(
        "ix_notices_pending",
        *("user_id", "project_id", "id"),
        where="delivered_at IS NULL",
    ),
    _partial("uq_notices_key", "user_id", "key", unique=True, where="key IS NOT NULL"),
    # Runs remember the ids of notices: ids must not be reused.
    sqlite_autoincrement=True,
)

# Tool calls that a person must approve.
approvals = Table(
    "approvals",
    metadata,
    Column("run_id", Id, ForeignKey("runs.id", ondelete="CASCADE"), nullable=False),
    Column("call_id", Text, nullable=False),
    # Copied from the run, to find a user's pending approvals.
    Column("user_id", Text, nullable=False),
    Column("tool", Text, nullable=False),
    Column("arguments_json", Json, nullable=False),
    Column("arguments_hash", Text, nullable=False, server_default=""),
    Column("reason", Text, nullable=False),
    Column("marks_json", Json),  # NULL without marks
    *_time_columns("asked_at", "expires_at"),
    Column("decision", Text, nullable=False, server_default="pending"),
    Column("decided_at", Double),
    Column("decided_by", Text),
    Column("note", Text, nullable=False, server_default=""),
    Column("used_by", Text),  # the step that executed the call
    PrimaryKeyConstraint("run_id", "call_id"),
    _one_of("decision", "pending", "approved", "denied", "expired"),
    CheckConstraint(
        "(decision = 'pending') = (decided_at IS NULL) "
        "AND (decided_at IS NULL) = (decided_by IS NULL)",
        name="decided",
    ),
    _partial(
        "ix_approvals_pending",
        *("user_id", "asked_at"),
        where="decision = 'pending'",
    ),
)

plugin_state = Table(
    "plugin_state",
    metadata,
    Column("user_id", Text, nullable=False),
    Column("plugin", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("value_json", Json, nullable=False),
    Column("marks_json", Json),
    PrimaryKeyConstraint("user_id", "plugin", "key"),
)

# Global blackboard keys of trees.
tree_globals = Table(
    "tree_globals",
    metadata,
    Column("user_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("agent_id", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("value_json", Json, nullable=False),
    Column("marks_json", Json),
    PrimaryKeyConstraint("user_id", "project_id", "agent_id", "key"),
)

settings = Table(
    "settings",
    metadata,
    Column("user_id", Text, primary_key=True),
    Column("model_settings_json", Json, nullable=False),
    *_time_columns("updated_at"),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", Id, primary_key=True),
    Column("user_id", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("hash", Text, nullable=False),
    Column("scopes_json", Json, nullable=False, server_default="[]"),
    *_time_columns("created_at"),
    Column("last_used_at", Double),
    Column("revoked_at", Double),
    Column("expires_at", Double),
    # What requests with the token may spend and use. NULL is unlimited.
    Column(
        "budget_tokens", BigInteger, CheckConstraint("budget_tokens >= 0", name="budget_tokens")
    ),
    Column("budget_nanos", BigInteger, CheckConstraint("budget_nanos >= 0", name="budget_nanos")),
    Column(
        "budget_period",
        Text,
        CheckConstraint("budget_period IN ('day', 'month', 'total')", name="budget_period"),
        nullable=False,
        server_default="total",
    ),
    Column("agents_json", Json),
    Column("models_json", Json),
    UniqueConstraint("hash"),
    Index("ix_tokens_user_id", "user_id"),
)

# Rejected requests and administrative changes. No foreign keys: entries outlive their subjects.
audit = Table(
    "audit",
    metadata,
    Column("id", Id, primary_key=True),
    *_time_columns("at"),
    Column("kind", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("user_id", Text, nullable=False, server_default=""),
    Column("token_id", Id),
    Column("address", Text, nullable=False, server_default=""),
    Column("what", Text, nullable=False),
    Column("more", Integer, nullable=False, server_default="0"),
    _one_of("kind", *AUDIT_KINDS),
    _one_of("outcome", *AUDIT_OUTCOMES),
    CheckConstraint("what <> ''", name="what"),
    CheckConstraint("more >= 0", name="more"),
    Index("ix_audit_at", "at"),
    Index("ix_audit_kind", "kind", "id"),
    sqlite_autoincrement=True,
)
