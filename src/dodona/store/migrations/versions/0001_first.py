"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

# A conversation refers to its head, and a run to its conversation. SQLite allows this cycle at
# once, PostgreSQL only when both tables exist.
HEAD = (["head_id"], ["runs.id"])


def upgrade() -> None:
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    inline = [sa.ForeignKeyConstraint(*HEAD, name="fk_head")] if is_sqlite else []

    op.create_table(
        "budgets",
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("period", sa.Text(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("ceiling", sa.BigInteger(), nullable=False),
        sa.Column("used", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("held", sa.BigInteger(), server_default="0", nullable=False),
        sa.CheckConstraint("unit IN ('tokens', 'usd')", name=op.f("ck_budgets_unit")),
        sa.CheckConstraint(
            "ceiling >= 0 AND used >= 0 AND held >= 0", name=op.f("ck_budgets_amounts")
        ),
        sa.PrimaryKeyConstraint("scope", "period", "unit", name=op.f("pk_budgets")),
    )
    op.create_table(
        "conversations",
        sa.Column("id", ID, nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), server_default="default", nullable=False),
        sa.Column("agent_id", sa.Text(), server_default="oracle", nullable=False),
        sa.Column("title", sa.Text(), server_default="", nullable=False),
        sa.Column("head_id", ID, nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.CheckConstraint("user_id <> ''", name=op.f("ck_conversations_user_id")),
        *inline,
        sa.PrimaryKeyConstraint("id", name=op.f("pk_conversations")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_conversations_user_id", "conversations", ["user_id", "updated_at"], unique=False
    )
    op.create_table(
        "plugin_state",
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("plugin", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value_json", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("user_id", "plugin", "key", name=op.f("pk_plugin_state")),
    )
    op.create_table(
        "projects",
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("vault_path", sa.Text(), nullable=True),
        sa.Column("code_paths_json", sa.Text(), server_default="[]", nullable=False),
        sa.Column("settings_json", sa.Text(), server_default="{}", nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("user_id", "id", name=op.f("pk_projects")),
    )
    op.create_table(
        "settings",
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("model_settings_json", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("user_id", name=op.f("pk_settings")),
    )
    op.create_table(
        "threads",
        sa.Column("id", ID, nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.CheckConstraint("title <> ''", name=op.f("ck_threads_title")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_threads")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_threads_user_id", "threads", ["user_id", "project_id", "updated_at"], unique=False
    )
    op.create_table(
        "token_records",
        sa.Column("id", ID, nullable=False),
        sa.Column("timestamp", sa.Double(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("session_key", sa.Text(), nullable=True),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("run_id", ID, nullable=True),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("cache_read_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cache_write_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cost_estimate_usd", sa.Double(), nullable=True),
        sa.Column("estimated", sa.Boolean(), server_default=sa.text("(false)"), nullable=False),
        sa.Column("usage_json", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_token_records")),
    )
    op.create_index(
        "ix_token_records_agent_id", "token_records", ["agent_id", "timestamp"], unique=False
    )
    op.create_index("ix_token_records_provider", "token_records", ["provider"], unique=False)
    op.create_index("ix_token_records_session_key", "token_records", ["session_key"], unique=False)
    op.create_index("ix_token_records_timestamp", "token_records", ["timestamp"], unique=False)
    op.create_index(
        "ix_token_records_user_id", "token_records", ["user_id", "timestamp"], unique=False
    )
    op.create_table(
        "tokens",
        sa.Column("id", ID, nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("scopes_json", sa.Text(), server_default="[]", nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("last_used_at", sa.Double(), nullable=True),
        sa.Column("revoked_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tokens")),
        sa.UniqueConstraint("hash", name=op.f("uq_tokens_hash")),
    )
    op.create_index("ix_tokens_user_id", "tokens", ["user_id"], unique=False)
    op.create_table(
        "tree_globals",
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("value_json", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("scope", "key", name=op.f("pk_tree_globals")),
    )
    op.create_table(
        "memory_entities",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("entity_type", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("predicate", sa.Text(), nullable=False),
        sa.Column("object", sa.Text(), nullable=False),
        sa.Column("session_key", sa.Text(), nullable=True),
        sa.Column("conversation_id", ID, nullable=True),
        sa.Column("learned_at", sa.Double(), nullable=False),
        sa.Column("superseded_at", sa.Double(), nullable=True),
        sa.Column("superseded_by", sa.Text(), nullable=True),
        sa.Column("confidence", sa.Double(), nullable=False),
        sa.CheckConstraint(
            "entity_type IN ('fact', 'relationship', 'attribute')",
            name=op.f("ck_memory_entities_entity_type"),
        ),
        sa.CheckConstraint(
            "confidence BETWEEN 0 AND 1", name=op.f("ck_memory_entities_confidence")
        ),
        sa.ForeignKeyConstraint(
            ["conversation_id"],
            ["conversations.id"],
            name=op.f("fk_memory_entities_conversation_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["superseded_by"],
            ["memory_entities.id"],
            name=op.f("fk_memory_entities_superseded_by"),
            ondelete="SET NULL",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_memory_entities")),
    )
    op.create_index(
        "ix_memory_entities_active",
        "memory_entities",
        ["user_id", "subject"],
        unique=False,
        sqlite_where=sa.text("superseded_at IS NULL"),
        postgresql_where=sa.text("superseded_at IS NULL"),
    )
    op.create_index(
        "ix_memory_entities_conversation_id", "memory_entities", ["conversation_id"], unique=False
    )
    op.create_index(
        "ix_memory_entities_learned_at", "memory_entities", ["learned_at"], unique=False
    )
    op.create_index("ix_memory_entities_predicate", "memory_entities", ["predicate"], unique=False)
    op.create_index(
        "ix_memory_entities_session_key", "memory_entities", ["session_key"], unique=False
    )
    op.create_index(
        "ix_memory_entities_subject",
        "memory_entities",
        ["user_id", "subject", "predicate"],
        unique=False,
    )
    op.create_index(
        "ix_memory_entities_superseded_by", "memory_entities", ["superseded_by"], unique=False
    )
    op.create_table(
        "oracle_contexts",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("conversation_id", ID, nullable=True),
        sa.Column("session_start", sa.Double(), nullable=False),
        sa.Column("last_activity", sa.Double(), nullable=True),
        sa.Column("last_model", sa.Text(), nullable=True),
        sa.Column("token_budget", sa.Integer(), server_default="16000", nullable=False),
        sa.Column("tokens_used", sa.Integer(), server_default="0", nullable=False),
        sa.Column("key_decisions_json", sa.Text(), server_default="[]", nullable=False),
        sa.Column("mentioned_symbols", sa.Text(), nullable=True),
        sa.Column("mentioned_files", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), server_default="active", nullable=False),
        sa.Column("compression_count", sa.Integer(), server_default="0", nullable=False),
        sa.CheckConstraint(
            "status IN ('active', 'suspended', 'closed')", name=op.f("ck_oracle_contexts_status")
        ),
        sa.CheckConstraint(
            "token_budget BETWEEN 4000 AND 128000", name=op.f("ck_oracle_contexts_token_budget")
        ),
        sa.CheckConstraint(
            "tokens_used >= 0 AND tokens_used * 10 <= token_budget * 11",
            name=op.f("ck_oracle_contexts_tokens"),
        ),
        sa.ForeignKeyConstraint(
            ["conversation_id"],
            ["conversations.id"],
            name=op.f("fk_oracle_contexts_conversation_id"),
            ondelete="SET NULL",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_oracle_contexts")),
        sa.UniqueConstraint(
            "user_id", "project_id", name=op.f("uq_oracle_contexts_user_id_project_id")
        ),
    )
    op.create_index(
        "ix_oracle_contexts_conversation_id", "oracle_contexts", ["conversation_id"], unique=False
    )
    op.create_index(
        "ix_oracle_contexts_last_activity", "oracle_contexts", ["last_activity"], unique=False
    )
    op.create_table(
        "runs",
        sa.Column("id", ID, nullable=False),
        sa.Column("conversation_id", ID, nullable=False),
        sa.Column("parent_id", ID, nullable=True),
        sa.Column("follows_head", sa.Boolean(), nullable=False),
        sa.Column("session_key", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), server_default="queued", nullable=False),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("pins_hash", sa.Text(), nullable=True),
        sa.Column("origin", sa.Text(), server_default="user", nullable=False),
        sa.Column("label", sa.Text(), nullable=True),
        sa.Column("tokens", sa.Integer(), server_default="0", nullable=False),
        sa.Column("error_json", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("cancel_requested_at", sa.Double(), nullable=True),
        sa.CheckConstraint(
            "(status = 'running') = (owner IS NOT NULL)", name=op.f("ck_runs_running_has_owner")
        ),
        sa.CheckConstraint(
            "status IN ('queued', 'running', 'waiting', 'succeeded', 'failed', 'cancelled')",
            name=op.f("ck_runs_status"),
        ),
        sa.CheckConstraint("parent_id <> id", name=op.f("ck_runs_parent_is_another")),
        sa.CheckConstraint("tokens >= 0", name=op.f("ck_runs_tokens")),
        sa.ForeignKeyConstraint(
            ["conversation_id", "parent_id"],
            ["runs.conversation_id", "runs.id"],
            name="fk_runs_parent",
        ),
        sa.ForeignKeyConstraint(
            ["conversation_id"],
            ["conversations.id"],
            name="fk_runs_conversation",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
        sa.UniqueConstraint("conversation_id", "id", name=op.f("uq_runs_conversation_id_id")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_runs_ended_at", "runs", ["ended_at"], unique=False)
    op.create_index(
        "ix_runs_open",
        "runs",
        ["conversation_id", "status", "id"],
        unique=False,
        sqlite_where=sa.text("status IN ('queued', 'running', 'waiting')"),
        postgresql_where=sa.text("status IN ('queued', 'running', 'waiting')"),
    )
    op.create_index("ix_runs_parent", "runs", ["conversation_id", "parent_id"], unique=False)
    op.create_index(
        "uq_runs_lane",
        "runs",
        ["conversation_id"],
        unique=True,
        sqlite_where=sa.text("status IN ('running', 'waiting')"),
        postgresql_where=sa.text("status IN ('running', 'waiting')"),
    )
    op.create_table(
        "sessions",
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("agent_id", sa.Text(), nullable=False),
        sa.Column("conversation_id", ID, nullable=True),
        sa.Column("message_count", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("input_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("output_tokens", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["conversation_id"],
            ["conversations.id"],
            name=op.f("fk_sessions_conversation_id"),
            ondelete="SET NULL",
        ),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_sessions")),
    )
    op.create_index("ix_sessions_agent_id", "sessions", ["agent_id"], unique=False)
    op.create_index("ix_sessions_conversation_id", "sessions", ["conversation_id"], unique=False)
    op.create_index("ix_sessions_updated_at", "sessions", ["updated_at"], unique=False)
    op.create_table(
        "thread_entries",
        sa.Column("id", ID, nullable=False),
        sa.Column("thread_id", ID, nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("entry_type", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.CheckConstraint(
            "author IN ('user', 'claude', 'oracle', 'librarian')",
            name=op.f("ck_thread_entries_author"),
        ),
        sa.CheckConstraint("content <> ''", name=op.f("ck_thread_entries_content")),
        sa.CheckConstraint(
            "entry_type IN ('thought', 'decision', 'research', 'insight')",
            name=op.f("ck_thread_entries_entry_type"),
        ),
        sa.ForeignKeyConstraint(
            ["thread_id"],
            ["threads.id"],
            name=op.f("fk_thread_entries_thread_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_thread_entries")),
    )
    op.create_index(
        "ix_thread_entries_thread_id", "thread_entries", ["thread_id", "id"], unique=False
    )
    op.create_table(
        "messages",
        sa.Column("id", ID, nullable=False),
        sa.Column("conversation_id", ID, nullable=False),
        sa.Column("run_id", ID, nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("tool_call_id", sa.Text(), nullable=True),
        sa.Column("metadata", sa.Text(), nullable=True),
        sa.Column("raw", sa.Text(), nullable=True),
        sa.Column("raw_provider", sa.Text(), nullable=True),
        sa.Column("token_count", sa.Integer(), nullable=False),
        sa.Column("key_insight", sa.Text(), nullable=True),
        sa.Column("mentioned_symbols_json", sa.Text(), server_default="[]", nullable=False),
        sa.Column("mentioned_files_json", sa.Text(), server_default="[]", nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.CheckConstraint(
            "role <> 'tool' OR tool_call_id IS NOT NULL", name=op.f("ck_messages_tool_call_id")
        ),
        sa.CheckConstraint("role = 'tool' OR content <> ''", name=op.f("ck_messages_content")),
        sa.CheckConstraint("role IN ('user', 'assistant', 'tool')", name=op.f("ck_messages_role")),
        sa.CheckConstraint("ordinal >= 0", name=op.f("ck_messages_ordinal")),
        sa.CheckConstraint("token_count > 0", name=op.f("ck_messages_token_count")),
        sa.ForeignKeyConstraint(
            ["conversation_id", "run_id"],
            ["runs.conversation_id", "runs.id"],
            name="fk_messages_run",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_messages")),
        sa.UniqueConstraint("run_id", "ordinal", name=op.f("uq_messages_run_id_ordinal")),
    )
    op.create_index(
        "ix_messages_conversation_id", "messages", ["conversation_id", "run_id"], unique=False
    )
    op.create_table(
        "notices",
        sa.Column("id", ID, nullable=False),
        sa.Column("user_id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("run_id", ID, nullable=True),
        sa.Column("event_type", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("delivered_at", sa.Double(), nullable=True),
        sa.CheckConstraint(
            "severity IN ('debug', 'info', 'warning', 'error', 'critical')",
            name=op.f("ck_notices_severity"),
        ),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_notices_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_notices")),
    )
    op.create_index(
        "ix_notices_pending",
        "notices",
        ["user_id", "project_id"],
        unique=False,
        sqlite_where=sa.text("delivered_at IS NULL"),
        postgresql_where=sa.text("delivered_at IS NULL"),
    )
    op.create_index("ix_notices_run_id", "notices", ["run_id"], unique=False)
    op.create_table(
        "reservations",
        sa.Column("id", ID, nullable=False),
        sa.Column("run_id", ID, nullable=True),
        sa.Column("step_key", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=True),
        sa.Column("lines_json", sa.Text(), nullable=False),
        sa.Column("if_cut_json", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), server_default="held", nullable=False),
        sa.Column("estimated", sa.Boolean(), server_default=sa.text("(false)"), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("settled_at", sa.Double(), nullable=True),
        sa.CheckConstraint("status IN ('held', 'settled')", name=op.f("ck_reservations_status")),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_reservations_run_id"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reservations")),
    )
    op.create_index("ix_reservations_run_id", "reservations", ["run_id", "status"], unique=False)
    op.create_table(
        "steps",
        sa.Column("run_id", ID, nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("leaf", sa.Text(), nullable=False),
        sa.Column("effect", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("request_hash", sa.Text(), server_default="", nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=True),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.CheckConstraint("effect IN ('none', 'keyed', 'once')", name=op.f("ck_steps_effect")),
        sa.CheckConstraint(
            "status IN ('started', 'succeeded', 'failed')", name=op.f("ck_steps_status")
        ),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_steps_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "key", name=op.f("pk_steps")),
    )
    op.create_table(
        "summaries",
        sa.Column("run_id", ID, nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("token_count", sa.Integer(), nullable=False),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.CheckConstraint("content <> ''", name=op.f("ck_summaries_content")),
        sa.CheckConstraint("token_count > 0", name=op.f("ck_summaries_token_count")),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_summaries_run_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_summaries")),
    )

    if not is_sqlite:
        op.create_foreign_key("fk_head", "conversations", "runs", ["head_id"], ["id"])
