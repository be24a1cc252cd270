CREATE TABLE projects (
  user_id TEXT NOT NULL,
  id TEXT NOT NULL,
  vault_path TEXT,
  code_paths_json TEXT DEFAULT '[]' NOT NULL,
  settings_json TEXT DEFAULT '{}' NOT NULL,
  created_at DOUBLE NOT NULL,
  CONSTRAINT pk_projects PRIMARY KEY (user_id, id)
);

CREATE TABLE conversations (
  id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  user_id TEXT NOT NULL,
  project_id TEXT DEFAULT 'default' NOT NULL,
  agent_id TEXT DEFAULT 'oracle' NOT NULL,
  title TEXT DEFAULT '' NOT NULL,
  head_id INTEGER,
  created_at DOUBLE NOT NULL,
  updated_at DOUBLE NOT NULL,
  CONSTRAINT ck_conversations_user_id CHECK (user_id <> ''),
  CONSTRAINT fk_head FOREIGN KEY(head_id) REFERENCES runs (id)
);
CREATE INDEX ix_conversations_user_id ON conversations (user_id, updated_at);

CREATE TABLE pins (
  hash TEXT NOT NULL,
  content BLOB NOT NULL,
  created_at DOUBLE NOT NULL,
  CONSTRAINT pk_pins PRIMARY KEY (hash)
);

CREATE TABLE budgets (
  scope TEXT NOT NULL,
  period TEXT NOT NULL,
  unit TEXT NOT NULL,
  ceiling BIGINT NOT NULL,
  used BIGINT DEFAULT '0' NOT NULL,
  held BIGINT DEFAULT '0' NOT NULL,
  CONSTRAINT pk_budgets PRIMARY KEY (scope, period, unit),
  CONSTRAINT ck_budgets_unit CHECK (unit IN ('tokens', 'usd')),
  CONSTRAINT ck_budgets_amounts CHECK (ceiling >= 0 AND used >= 0 AND held >= 0)
);

CREATE TABLE token_records (
  id INTEGER NOT NULL,
  timestamp DOUBLE NOT NULL,
  user_id TEXT NOT NULL,
  session_key TEXT,
  agent_id TEXT NOT NULL,
  run_id INTEGER,
  provider TEXT NOT NULL,
  model TEXT NOT NULL,
  input_tokens BIGINT NOT NULL,
  output_tokens BIGINT NOT NULL,
  cache_read_tokens BIGINT DEFAULT '0' NOT NULL,
  cache_write_tokens BIGINT DEFAULT '0' NOT NULL,
  reasoning_tokens BIGINT DEFAULT '0' NOT NULL,
  cost_estimate_usd DOUBLE,
  estimated BOOLEAN DEFAULT false NOT NULL,
  usage_json TEXT,
  CONSTRAINT pk_token_records PRIMARY KEY (id)
);
CREATE INDEX ix_token_records_session_key ON token_records (session_key);
CREATE INDEX ix_token_records_agent_id ON token_records (agent_id, timestamp);
CREATE INDEX ix_token_records_provider ON token_records (provider);
CREATE INDEX ix_token_records_user_id ON token_records (user_id, timestamp);
CREATE INDEX ix_token_records_timestamp ON token_records (timestamp);

CREATE TABLE threads (
  id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  user_id TEXT NOT NULL,
  project_id TEXT NOT NULL,
  title TEXT NOT NULL,
  title_key TEXT,
  created_at DOUBLE NOT NULL,
  updated_at DOUBLE NOT NULL,
  CONSTRAINT ck_threads_title CHECK (title <> '')
);
CREATE INDEX ix_threads_user_id ON threads (user_id, project_id, updated_at);
CREATE UNIQUE INDEX uq_threads_title_key ON threads (user_id, project_id, title_key);

CREATE TABLE plugin_state (
  user_id TEXT NOT NULL,
  plugin TEXT NOT NULL,
  "key" TEXT NOT NULL,
  value_json TEXT NOT NULL,
  CONSTRAINT pk_plugin_state PRIMARY KEY (user_id, plugin, "key")
);

CREATE TABLE tree_globals (
  user_id TEXT NOT NULL,
  project_id TEXT NOT NULL,
  agent_id TEXT NOT NULL,
  "key" TEXT NOT NULL,
  value_json TEXT NOT NULL,
  CONSTRAINT pk_tree_globals PRIMARY KEY (user_id, project_id, agent_id, "key")
);

CREATE TABLE settings (
  user_id TEXT NOT NULL,
  model_settings_json TEXT NOT NULL,
  updated_at DOUBLE NOT NULL,
  CONSTRAINT pk_settings PRIMARY KEY (user_id)
);

CREATE TABLE tokens (
  id INTEGER NOT NULL,
  user_id TEXT NOT NULL,
  label TEXT NOT NULL,
  hash TEXT NOT NULL,
  scopes_json TEXT DEFAULT '[]' NOT NULL,
  created_at DOUBLE NOT NULL,
  last_used_at DOUBLE,
  revoked_at DOUBLE,
  expires_at DOUBLE,
  CONSTRAINT pk_tokens PRIMARY KEY (id),
  CONSTRAINT uq_tokens_hash UNIQUE (hash)
);
CREATE INDEX ix_tokens_user_id ON tokens (user_id);

CREATE TABLE audit (
  id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  at DOUBLE NOT NULL,
  kind TEXT NOT NULL,
  outcome TEXT NOT NULL,
  user_id TEXT DEFAULT '' NOT NULL,
  token_id INTEGER,
  address TEXT DEFAULT '' NOT NULL,
  what TEXT NOT NULL,
  more INTEGER DEFAULT '0' NOT NULL,
  CONSTRAINT ck_audit_kind CHECK (kind IN ('auth', 'denied', 'limit', 'budget', 'admin')),
  CONSTRAINT ck_audit_outcome CHECK (outcome IN ('refused', 'done')),
  CONSTRAINT ck_audit_what CHECK (what <> ''),
  CONSTRAINT ck_audit_more CHECK (more >= 0)
);
CREATE INDEX ix_audit_kind ON audit (kind, id);
CREATE INDEX ix_audit_at ON audit (at);
CREATE TRIGGER audit_same BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is only added to'); END;

CREATE TABLE runs (
  id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  conversation_id INTEGER NOT NULL,
  user_id TEXT DEFAULT '' NOT NULL,
  parent_id INTEGER,
  window_from INTEGER,
  window_runs INTEGER DEFAULT '0' NOT NULL,
  window_tokens INTEGER DEFAULT '0' NOT NULL,
  follows_head BOOLEAN NOT NULL,
  session_key TEXT,
  status TEXT DEFAULT 'queued' NOT NULL,
  attempt INTEGER DEFAULT '0' NOT NULL,
  owner TEXT,
  pins_hash TEXT,
  origin TEXT DEFAULT 'user' NOT NULL,
  label TEXT,
  tokens INTEGER DEFAULT '0' NOT NULL,
  error_json TEXT,
  created_at DOUBLE NOT NULL,
  started_at DOUBLE,
  ended_at DOUBLE,
  cancel_requested_at DOUBLE,
  said_digest TEXT,
  CONSTRAINT ck_runs_status CHECK (status IN ('queued', 'running', 'waiting', 'succeeded', 'failed', 'cancelled')),
  CONSTRAINT ck_runs_parent_is_another CHECK (parent_id <> id),
  CONSTRAINT ck_runs_tokens CHECK (tokens >= 0),
  CONSTRAINT ck_runs_running_has_owner CHECK ((status = 'running') = (owner IS NOT NULL)),
  CONSTRAINT uq_runs_conversation_id_id UNIQUE (conversation_id, id),
  CONSTRAINT fk_runs_conversation FOREIGN KEY(conversation_id) REFERENCES conversations (id) ON DELETE CASCADE,
  CONSTRAINT fk_runs_parent FOREIGN KEY(conversation_id, parent_id) REFERENCES runs (conversation_id, id)
);
CREATE INDEX ix_runs_parent ON runs (conversation_id, parent_id);
CREATE INDEX ix_runs_said_digest ON runs (user_id, said_digest) WHERE said_digest IS NOT NULL;
CREATE UNIQUE INDEX uq_runs_lane ON runs (conversation_id) WHERE status IN ('running', 'waiting');
CREATE INDEX ix_runs_ended_at ON runs (ended_at);
CREATE INDEX ix_runs_user_id ON runs (user_id, id);
CREATE INDEX ix_runs_open ON runs (conversation_id, status, id) WHERE status IN ('queued', 'running', 'waiting');
CREATE INDEX ix_runs_open_user ON runs (user_id) WHERE status IN ('queued', 'running', 'waiting');

CREATE TABLE oracle_contexts (
  id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  project_id TEXT NOT NULL,
  conversation_id INTEGER,
  session_start DOUBLE NOT NULL,
  last_activity DOUBLE,
  last_model TEXT,
  token_budget INTEGER DEFAULT '16000' NOT NULL,
  tokens_used INTEGER DEFAULT '0' NOT NULL,
  key_decisions_json TEXT DEFAULT '[]' NOT NULL,
  mentioned_symbols TEXT,
  mentioned_files TEXT,
  status TEXT DEFAULT 'active' NOT NULL,
  compression_count INTEGER DEFAULT '0' NOT NULL,
  CONSTRAINT pk_oracle_contexts PRIMARY KEY (id),
  CONSTRAINT ck_oracle_contexts_status CHECK (status IN ('active', 'suspended', 'closed')),
  CONSTRAINT ck_oracle_contexts_token_budget CHECK (token_budget BETWEEN 4000 AND 128000),
  CONSTRAINT ck_oracle_contexts_tokens CHECK (tokens_used >= 0 AND tokens_used * 10 <= token_budget * 11),
  CONSTRAINT uq_oracle_contexts_user_id_project_id UNIQUE (user_id, project_id),
  CONSTRAINT fk_oracle_contexts_conversation_id FOREIGN KEY(conversation_id) REFERENCES conversations (id) ON DELETE SET NULL
);
CREATE INDEX ix_oracle_contexts_last_activity ON oracle_contexts (last_activity);
CREATE INDEX ix_oracle_contexts_conversation_id ON oracle_contexts (conversation_id);

CREATE TABLE sessions (
  "key" TEXT NOT NULL,
  user_id TEXT NOT NULL,
  agent_id TEXT NOT NULL,
  conversation_id INTEGER,
  message_count BIGINT DEFAULT '0' NOT NULL,
  input_tokens BIGINT DEFAULT '0' NOT NULL,
  output_tokens BIGINT DEFAULT '0' NOT NULL,
  created_at DOUBLE NOT NULL,
  updated_at DOUBLE NOT NULL,
  CONSTRAINT pk_sessions PRIMARY KEY ("key"),
  CONSTRAINT fk_sessions_conversation_id FOREIGN KEY(conversation_id) REFERENCES conversations (id) ON DELETE SET NULL
);
CREATE INDEX ix_sessions_agent_id ON sessions (agent_id);
CREATE INDEX ix_sessions_updated_at ON sessions (updated_at);
CREATE INDEX ix_sessions_conversation_id ON sessions (conversation_id);

CREATE TABLE memory_entities (
  id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  entity_type TEXT NOT NULL,
  subject TEXT NOT NULL,
  predicate TEXT NOT NULL,
  object TEXT NOT NULL,
  session_key TEXT,
  conversation_id INTEGER,
  learned_at DOUBLE NOT NULL,
  superseded_at DOUBLE,
  superseded_by TEXT,
  confidence DOUBLE NOT NULL,
  CONSTRAINT pk_memory_entities PRIMARY KEY (id),
  CONSTRAINT ck_memory_entities_entity_type CHECK (entity_type IN ('fact', 'relationship', 'attribute')),
  CONSTRAINT ck_memory_entities_confidence CHECK (confidence BETWEEN 0 AND 1),
  CONSTRAINT fk_memory_entities_conversation_id FOREIGN KEY(conversation_id) REFERENCES conversations (id) ON DELETE CASCADE,
  CONSTRAINT fk_memory_entities_superseded_by FOREIGN KEY(superseded_by) REFERENCES memory_entities (id) ON DELETE SET NULL
);
CREATE INDEX ix_memory_entities_superseded_by ON memory_entities (superseded_by);
CREATE INDEX ix_memory_entities_subject ON memory_entities (user_id, subject, predicate);
CREATE INDEX ix_memory_entities_session_key ON memory_entities (session_key);
CREATE INDEX ix_memory_entities_conversation_id ON memory_entities (conversation_id);
CREATE INDEX ix_memory_entities_predicate ON memory_entities (predicate);
CREATE INDEX ix_memory_entities_learned_at ON memory_entities (learned_at);
CREATE INDEX ix_memory_entities_active ON memory_entities (user_id, subject) WHERE superseded_at IS NULL;

CREATE TABLE thread_entries (
  id INTEGER NOT NULL,
  thread_id INTEGER NOT NULL,
  title TEXT DEFAULT '' NOT NULL,
  author TEXT NOT NULL,
  entry_type TEXT NOT NULL,
  content TEXT NOT NULL,
  "key" TEXT,
  created_at DOUBLE NOT NULL,
  CONSTRAINT pk_thread_entries PRIMARY KEY (id),
  CONSTRAINT ck_thread_entries_author CHECK (author IN ('user', 'claude', 'oracle', 'librarian')),
  CONSTRAINT ck_thread_entries_entry_type CHECK (entry_type IN ('thought', 'decision', 'research', 'insight')),
  CONSTRAINT ck_thread_entries_content CHECK (content <> ''),
  CONSTRAINT fk_thread_entries_thread_id FOREIGN KEY(thread_id) REFERENCES threads (id) ON DELETE CASCADE
);
CREATE INDEX ix_thread_entries_thread_id ON thread_entries (thread_id, id);
CREATE UNIQUE INDEX uq_thread_entries_key ON thread_entries ("key", thread_id) WHERE key IS NOT NULL;
CREATE VIRTUAL TABLE thread_words USING fts5(title, content, content='thread_entries', content_rowid='id', tokenize='porter unicode61 remove_diacritics 2');
CREATE TRIGGER thread_entries_added AFTER INSERT ON thread_entries BEGIN INSERT INTO thread_words (rowid, title, content) VALUES (new.id, new.title, new.content); END;
CREATE TRIGGER thread_entries_gone AFTER DELETE ON thread_entries BEGIN INSERT INTO thread_words (thread_words, rowid, title, content) VALUES ('delete', old.id, old.title, old.content); END;
CREATE TRIGGER thread_entries_stay BEFORE DELETE ON thread_entries WHEN EXISTS (SELECT 1 FROM threads WHERE id = old.thread_id) BEGIN SELECT RAISE(ABORT, 'entries of threads are only added'); END;
CREATE TRIGGER thread_entries_same BEFORE UPDATE ON thread_entries BEGIN SELECT RAISE(ABORT, 'entries of threads are only added'); END;

CREATE TABLE messages (
  id INTEGER NOT NULL,
  conversation_id INTEGER NOT NULL,
  run_id INTEGER NOT NULL,
  ordinal INTEGER NOT NULL,
  role TEXT NOT NULL,
  content TEXT NOT NULL,
  tool_call_id TEXT,
  metadata TEXT,
  raw TEXT,
  raw_provider TEXT,
  token_count INTEGER NOT NULL,
  key_insight TEXT,
  mentioned_symbols_json TEXT DEFAULT '[]' NOT NULL,
  mentioned_files_json TEXT DEFAULT '[]' NOT NULL,
  created_at DOUBLE NOT NULL,
  CONSTRAINT pk_messages PRIMARY KEY (id),
  CONSTRAINT ck_messages_role CHECK (role IN ('user', 'assistant', 'tool')),
  CONSTRAINT ck_messages_content CHECK (role = 'tool' OR content <> ''),
  CONSTRAINT ck_messages_tool_call_id CHECK (role <> 'tool' OR tool_call_id IS NOT NULL),
  CONSTRAINT ck_messages_token_count CHECK (token_count > 0),
  CONSTRAINT ck_messages_ordinal CHECK (ordinal >= 0),
  CONSTRAINT uq_messages_run_id_ordinal UNIQUE (run_id, ordinal),
  CONSTRAINT fk_messages_run FOREIGN KEY(conversation_id, run_id) REFERENCES runs (conversation_id, id) ON DELETE CASCADE
);
CREATE INDEX ix_messages_conversation_id ON messages (conversation_id, run_id);

CREATE TABLE steps (
  run_id INTEGER NOT NULL,
  "key" TEXT NOT NULL,
  leaf TEXT NOT NULL,
  effect TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  request_hash TEXT DEFAULT '' NOT NULL,
  status TEXT NOT NULL,
  payload TEXT,
  started_at DOUBLE NOT NULL,
  ended_at DOUBLE,
  CONSTRAINT pk_steps PRIMARY KEY (run_id, "key"),
  CONSTRAINT ck_steps_effect CHECK (effect IN ('none', 'keyed', 'once')),
  CONSTRAINT ck_steps_status CHECK (status IN ('started', 'succeeded', 'failed')),
  CONSTRAINT fk_steps_run_id FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);

CREATE TABLE summaries (
  run_id INTEGER NOT NULL,
  content TEXT NOT NULL,
  token_count INTEGER NOT NULL,
  model TEXT,
  created_at DOUBLE NOT NULL,
  CONSTRAINT pk_summaries PRIMARY KEY (run_id),
  CONSTRAINT ck_summaries_content CHECK (content <> ''),
  CONSTRAINT ck_summaries_token_count CHECK (token_count > 0),
  CONSTRAINT fk_summaries_run_id FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);

CREATE TABLE reservations (
  id INTEGER NOT NULL,
  run_id INTEGER,
  step_key TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  owner TEXT,
  lines_json TEXT NOT NULL,
  if_cut_json TEXT,
  status TEXT DEFAULT 'held' NOT NULL,
  estimated BOOLEAN DEFAULT false NOT NULL,
  created_at DOUBLE NOT NULL,
  settled_at DOUBLE,
  CONSTRAINT pk_reservations PRIMARY KEY (id),
  CONSTRAINT ck_reservations_status CHECK (status IN ('held', 'settled')),
  CONSTRAINT fk_reservations_run_id FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE SET NULL
);
CREATE INDEX ix_reservations_run_id ON reservations (run_id, status);

CREATE TABLE notices (
  id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
  user_id TEXT NOT NULL,
  project_id TEXT NOT NULL,
  run_id INTEGER,
  event_type TEXT NOT NULL,
  severity TEXT NOT NULL,
  event_json TEXT NOT NULL,
  moment TEXT NOT NULL,
  due_at DOUBLE,
  tool TEXT DEFAULT '' NOT NULL,
  condition TEXT DEFAULT '' NOT NULL,
  "key" TEXT,
  created_at DOUBLE NOT NULL,
  delivered_at DOUBLE,
  CONSTRAINT ck_notices_severity CHECK (severity IN ('debug', 'info', 'warning', 'error', 'critical')),
  CONSTRAINT ck_notices_moment CHECK (moment IN ('time', 'tool', 'condition', 'session')),
  CONSTRAINT ck_notices_due_at CHECK ((moment = 'time') = (due_at IS NOT NULL)),
  CONSTRAINT ck_notices_tool CHECK ((moment = 'tool') = (tool <> '')),
  CONSTRAINT ck_notices_condition CHECK ((moment = 'condition') = (condition <> '')),
  CONSTRAINT fk_notices_run_id FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);
CREATE UNIQUE INDEX uq_notices_key ON notices (user_id, "key") WHERE key IS NOT NULL;
CREATE INDEX ix_notices_user_id ON notices (user_id, id);
CREATE INDEX ix_notices_pending ON notices (user_id, project_id, id) WHERE delivered_at IS NULL;
CREATE INDEX ix_notices_run_id ON notices (run_id);

CREATE TABLE approvals (
  run_id INTEGER NOT NULL,
  call_id TEXT NOT NULL,
  user_id TEXT NOT NULL,
  tool TEXT NOT NULL,
  arguments_json TEXT NOT NULL,
  reason TEXT NOT NULL,
  asked_at DOUBLE NOT NULL,
  expires_at DOUBLE NOT NULL,
  decision TEXT DEFAULT 'pending' NOT NULL,
  decided_at DOUBLE,
  decided_by TEXT,
  note TEXT DEFAULT '' NOT NULL,
  CONSTRAINT pk_approvals PRIMARY KEY (run_id, call_id),
  CONSTRAINT ck_approvals_decision CHECK (decision IN ('pending', 'approved', 'denied', 'expired')),
  CONSTRAINT ck_approvals_decided CHECK ((decision = 'pending') = (decided_at IS NULL) AND (decided_at IS NULL) = (decided_by IS NULL)),
  CONSTRAINT fk_approvals_run_id FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);
CREATE INDEX ix_approvals_pending ON approvals (user_id, asked_at) WHERE decision = 'pending';
