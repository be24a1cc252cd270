"""Sessions by user and key, budgets of sessions named `session:USER:KEY`, and limits of tokens.

Before, a key had one session, but its budget was shared by all users with calls under this key.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

from alembic import op
from sqlalchemy import Connection, text

revision = "1002"
down_revision = "1001"

_SQLITE_SESSIONS = (
    """CREATE TABLE new_sessions (
  user_id TEXT NOT NULL,
  "key" TEXT NOT NULL,
  agent_id TEXT NOT NULL,
  conversation_id INTEGER,
  message_count BIGINT DEFAULT '0' NOT NULL,
  input_tokens BIGINT DEFAULT '0' NOT NULL,
  output_tokens BIGINT DEFAULT '0' NOT NULL,
  created_at DOUBLE NOT NULL,
  updated_at DOUBLE NOT NULL,
  CONSTRAINT pk_sessions PRIMARY KEY (user_id, "key"),
  CONSTRAINT fk_sessions_conversation_id FOREIGN KEY(conversation_id)
    REFERENCES conversations (id) ON DELETE SET NULL
)""",
    """INSERT INTO new_sessions SELECT user_id, "key", agent_id, conversation_id, message_count,
  input_tokens, output_tokens, created_at, updated_at FROM sessions""",
    "DROP TABLE sessions",
    "ALTER TABLE new_sessions RENAME TO sessions",
    "CREATE INDEX ix_sessions_agent_id ON sessions (agent_id)",
    "CREATE INDEX ix_sessions_updated_at ON sessions (updated_at)",
    "CREATE INDEX ix_sessions_conversation_id ON sessions (conversation_id)",
)
_POSTGRES_SESSIONS = (
    "ALTER TABLE sessions DROP CONSTRAINT pk_sessions",
    'ALTER TABLE sessions ADD CONSTRAINT pk_sessions PRIMARY KEY (user_id, "key")',
)
_LIMITS = (
    "ALTER TABLE runs ADD COLUMN token_id {id}",
    "ALTER TABLE tokens ADD COLUMN budget_tokens BIGINT "
    "CONSTRAINT ck_tokens_budget_tokens CHECK (budget_tokens >= 0)",
    "ALTER TABLE tokens ADD COLUMN budget_nanos BIGINT "
    "CONSTRAINT ck_tokens_budget_nanos CHECK (budget_nanos >= 0)",
    "ALTER TABLE tokens ADD COLUMN budget_period TEXT DEFAULT 'total' NOT NULL "
    "CONSTRAINT ck_tokens_budget_period CHECK (budget_period IN ('day', 'month', 'total'))",
    "ALTER TABLE tokens ADD COLUMN agents_json TEXT",
    "ALTER TABLE tokens ADD COLUMN models_json TEXT",
)
_SELECT_RESERVED = text(
    "SELECT reservations.id, lines_json, if_cut_json, runs.user_id FROM reservations "
    "LEFT JOIN runs ON runs.id = reservations.run_id WHERE reservations.status = 'held'"
)
_UPDATE_LINES = text("UPDATE reservations SET lines_json = :lines WHERE id = :id")
_SELECT_BUDGETS = text(
    "SELECT scope, period, unit, ceiling, used FROM budgets WHERE substr(scope, 1, 8) = 'session:'"
)
_DELETE_BUDGETS = text("DELETE FROM budgets WHERE substr(scope, 1, 8) = 'session:'")
_INSERT_BUDGET = text(
    "INSERT INTO budgets (scope, period, unit, ceiling, used, held) "
    "VALUES (:scope, :period, :unit, :ceiling, :used, :held)"
)
_SELECT_USAGE = text(
    "SELECT user_id, sum(input_tokens + output_tokens), sum(coalesce(cost_estimate_usd, 0.0)) "
    "FROM token_records WHERE session_key = :key GROUP BY user_id"
)
_NANOS_PER_USD = 1_000_000_000


def upgrade() -> None:
    connection = op.get_bind()
    is_sqlite = connection.dialect.name == "sqlite"
    for statement in _SQLITE_SESSIONS if is_sqlite else _POSTGRES_SESSIONS:
        connection.exec_driver_sql(statement)
    for statement in _LIMITS:
        connection.exec_driver_sql(statement.format(id="INTEGER" if is_sqlite else "BIGINT"))
    _rename_budgets(connection, _rename_reserved_lines(connection))


def _rename_reserved_lines(connection: Connection) -> Counter[tuple[str, str, str, str]]:
    """Rename the lines of open reservations; return the sums by user, scope, period and unit."""
    reserved: Counter[tuple[str, str, str, str]] = Counter()
    for id_, lines_json, record_json, run_user in connection.execute(_SELECT_RESERVED).all():
        user_id = run_user or json.loads(record_json or "{}").get("user_id", "")
        lines: list[dict[str, Any]] = json.loads(lines_json)
        for line in lines:
            scope: str = line["scope"]
            if scope.startswith("session:"):
                reserved[user_id, scope, line["period"], line["unit"]] += line["amount"]
                line["scope"] = _scope_of(user_id, scope)
        values = {"id": id_, "lines": json.dumps(lines, ensure_ascii=False)}
        connection.execute(_UPDATE_LINES, values)
    return reserved


def _rename_budgets(connection: Connection, reserved: Counter[tuple[str, str, str, str]]) -> None:
    """Rename the budgets; what several users shared is divided by the recorded usage of each."""
    rows = connection.execute(_SELECT_BUDGETS).all()
    connection.execute(_DELETE_BUDGETS)
    for scope, period, unit, ceiling, used in rows:
        usage = connection.execute(_SELECT_USAGE, {"key": scope.removeprefix("session:")}).all()
        recorded = {
            user_id: int(tokens) if unit == "tokens" else math.ceil(round(usd * _NANOS_PER_USD, 3))
            for user_id, tokens, usd in usage
        }
        with_calls = {key[0] for key in reserved if key[1:] == (scope, period, unit)}
        users = sorted({*recorded, *with_calls})
        for user_id in users:
            values = {
                "scope": _scope_of(user_id, scope),
                "period": period,
                "unit": unit,
                "ceiling": ceiling,
                "used": used if len(users) == 1 else recorded.get(user_id, 0),
                "held": reserved[user_id, scope, period, unit],
            }
            connection.execute(_INSERT_BUDGET, values)


def _scope_of(user_id: str, scope: str) -> str:
    return f"session:{user_id}:{scope.removeprefix('session:')}"
