"""A store that an older Dodona left is brought to this version with all that is in it.

The store has the first schema. The tests add one more migration, as a later Dodona would.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from alembic import op
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from dodona.core.domain.conversations.conversation import ClaimedRun, RunRequest, Window
from dodona.store import Store, inspect, migrate, parse_location
from dodona.store.integrity import check
from dodona.store.key_values import GlobalsScope, StoredValue
from tests.conformance.store.later import LATER_REVISION, add_migration, make_first
from tests.conformance.store.saying import ended
from tests.conformance.store.test_schema import connect
from tests.stored import budgets_of, undelivered

# Rows of the first schema: two users, three runs in a chain, one of them cut, one that waits.
FIRST = """
INSERT INTO conversations (id, user_id, project_id, created_at, updated_at) VALUES
  (1, 'ada', 'default', 1, 1), (2, 'bob', 'default', 1, 1);
INSERT INTO runs (id, conversation_id, user_id, parent_id, follows_head, status, attempt, owner,
  pins_hash, tokens, created_at, started_at, ended_at) VALUES
  (1, 1, 'ada', NULL, true, 'succeeded', 1, NULL, 'abc', 20, 1, 1, 2),
  (2, 1, 'ada', 1, true, 'succeeded', 1, NULL, NULL, 20, 3, 3, 4),
  (3, 1, 'ada', 2, true, 'running', 1, 'host:1:dead', 'abc', 10, 5, 5, NULL),
  (4, 1, 'ada', NULL, true, 'queued', 0, NULL, NULL, 10, 6, NULL, NULL),
  (5, 2, 'bob', NULL, true, 'succeeded', 1, NULL, NULL, 20, 1, 1, 2);
INSERT INTO messages (id, conversation_id, run_id, ordinal, role, content, token_count, created_at)
VALUES (1, 1, 1, 0, 'user', 'one', 10, 1), (2, 1, 1, 1, 'assistant', 'on one', 10, 2),
  (3, 1, 2, 0, 'user', 'two', 10, 3), (4, 1, 2, 1, 'assistant', 'on two', 10, 4),
  (5, 1, 3, 0, 'user', 'three', 10, 5), (6, 1, 4, 0, 'user', 'four', 10, 6),
  (7, 2, 5, 0, 'user', 'his', 10, 1), (8, 2, 5, 1, 'assistant', 'on his', 10, 2);
UPDATE conversations SET head_id = 2 WHERE id = 1;
UPDATE conversations SET head_id = 5 WHERE id = 2;
INSERT INTO steps (run_id, key, leaf, effect, attempt, status, payload, started_at, ended_at)
VALUES (3, 'read', 'read', 'none', 1, 'started', NULL, 5, NULL),
  (3, 'pay', 'pay', 'keyed', 1, 'succeeded', '{"writes":{"a":1},"chunks":[],"error":null}', 5, 6);
INSERT INTO oracle_contexts (id, user_id, project_id, conversation_id, session_start, last_activity)
VALUES ('c', 'ada', 'default', 1, 1, 6);
INSERT INTO settings (user_id, model_settings_json, updated_at)
VALUES ('ada', '{"max_context_nodes": 10}', 1);
INSERT INTO projects (user_id, id, created_at) VALUES ('ada', 'default', 1);
INSERT INTO notices (id, user_id, project_id, run_id, event_type, severity, event_json, moment,
  created_at, delivered_at) VALUES
  (3, 'ada', 'default', 1, 'self.notify', 'info',
   '{"id":"a","type":"self.notify","source":"s","severity":"info","payload":{"text":"🌳"},'
   || '"timestamp":2.0,"dedupe_key":""}', 'session', 2, NULL),
  (4, 'bob', 'default', 5, 'self.notify', 'error', '{}', 'session', 4, NULL);
INSERT INTO sessions (key, user_id, agent_id, conversation_id, message_count, created_at,
  updated_at) VALUES ('work:chat:acme:eve', 'ada', 'work', 1, 4, 1, 2),
  ('oracle:web:bob:default', 'ada', 'oracle', NULL, 2, 1, 3);
INSERT INTO token_records (id, timestamp, user_id, session_key, agent_id, provider, model,
  input_tokens, output_tokens, cost_estimate_usd) VALUES
  (1, 2, 'ada', 'work:chat:acme:eve', 'work', 'p', 'm', 60, 40, 0.5),
  (2, 2, 'ada', 'oracle:web:bob:default', 'oracle', 'p', 'm', 6, 4, 0.25),
  (3, 2, 'bob', 'oracle:web:bob:default', 'oracle', 'p', 'm', 5, 2, NULL);
INSERT INTO budgets (scope, period, unit, ceiling, used, held) VALUES
  ('session:work:chat:acme:eve', '-', 'tokens', 1000, 111, 30),
  ('session:oracle:web:bob:default', '-', 'tokens', 1000, 17, 9),
  ('session:oracle:web:bob:default', '-', 'usd', 1000000000, 250000000, 0),
  ('session:gone', '-', 'tokens', 1000, 0, 0),
  ('user:ada', '-', 'tokens', 1000, 128, 30);
INSERT INTO reservations (id, run_id, step_key, attempt, lines_json, if_cut_json, created_at) VALUES
  (1, 3, 'a', 1, '[{"scope":"session:work:chat:acme:eve","period":"-","unit":"tokens",'
   || '"amount":30,"ceiling":1000},{"scope":"user:ada","period":"-","unit":"tokens",'
   || '"amount":30,"ceiling":1000}]', NULL, 5),
  (2, NULL, 'b', 0, '[{"scope":"session:oracle:web:bob:default","period":"-",'
   || '"unit":"tokens","amount":9,"ceiling":1000}]', '{"user_id":"bob","agent_id":"oracle",'
   || '"provider":"p","model":"m","input_tokens":5,"output_tokens":4,'
   || '"cost_estimate_usd":null}', 5);
INSERT INTO plugin_state (user_id, plugin, key, value_json) VALUES ('ada', 'p', 'k', '[1]');
INSERT INTO tree_globals (user_id, project_id, agent_id, key, value_json)
VALUES ('ada', 'default', 'oracle', 'g', '"x"');
INSERT INTO threads (id, user_id, project_id, title, created_at, updated_at)
VALUES (1, 'ada', 'default', 'Trees', 1, 1);
INSERT INTO thread_entries (id, thread_id, author, entry_type, content, created_at)
VALUES (1, 1, 'user', 'thought', 'oaks', 1);
"""
# Ids were given by hand: PostgreSQL does not count those.
COUNT_ON = "SELECT setval(pg_get_serial_sequence('{0}', 'id'), (SELECT max(id) FROM {0}))"


@pytest.fixture
def first(url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store of the first schema, with something in it."""
    make_first(url, monkeypatch)
    with connect(url).begin() as connection:
        for line in filter(None, map(str.strip, FIRST.split(";\n"))):
            connection.execute(text(line.replace(":", "\\:")))
        if url.startswith("postgresql:"):
            for table in (
                *("conversations", "runs", "messages", "notices", "threads"),
                *("token_records", "reservations"),
            ):
                connection.execute(text(COUNT_ON.format(table)))
    return url


@pytest.fixture
def later(first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same store, found by a Dodona with one more migration."""
    add_migration(tmp_path, monkeypatch)
    return first


def problems_of(url: str) -> list[str]:
    return [problem for each in check(parse_location(url)) for problem in each.problems]


def colours(url: str) -> list[tuple[int, str]]:
    with connect(url).connect() as connection:
        rows = connection.execute(text("SELECT id, colour FROM notices ORDER BY id"))
        return [(row[0], row[1]) for row in rows]


def test_a_store_of_an_earlier_schema_is_migrated(later: str) -> None:
    """It says from where; the new migration has run on the old rows, and nothing is wrong."""
    before = inspect(parse_location(later))
    assert (before.revision, before.is_current) == ("1001", False)
    assert migrate(parse_location(later)).revision == "1001"
    after = inspect(parse_location(later))
    assert (after.revision, after.is_current) == (LATER_REVISION, True)
    assert colours(later) == [(3, ""), (4, "red")]
    assert migrate(parse_location(later)).revision == LATER_REVISION
    assert problems_of(later) == []


async def test_what_an_earlier_schema_held_is_kept(later: str) -> None:
    async with await Store.open(later, redact=str) as store:
        listed = await store.runs.list("ada", limit=10)
        said_in = [message.content for message in await store.runs.messages("ada", 1)]
        (waiting,) = await undelivered(store, "ada", "default")
        (entry,) = (await store.threads.read("ada", "default", 1)).entries
        found = await store.threads.search("ada", "default", "oak", limit=5)
        assert await store.pack_state.all("ada") == {"p": {"k": StoredValue([1])}}
        scope = GlobalsScope("ada", "default", "oracle")
        assert await store.tree_globals.get(scope, ["g"]) == {"g": StoredValue("x")}
        assert await store.settings.get("ada") == {"max_context_nodes": 10}
    assert [(each.run.id, each.question) for each in listed] == [
        (4, "four"),
        (3, "three"),
        (2, "two"),
        (1, "one"),
    ]
    assert said_in == ["one", "on one"]
    assert (waiting.id, waiting.event.payload) == (3, {"text": "🌳"})
    assert (entry.content, [hit.id for hit in found]) == ("oaks", [entry.id])
    assert (entry.marks, found[0].marks, waiting.event.marks) == ([], [], frozenset())
    assert (await asyncio.to_thread(inspect, parse_location(later))).revision == LATER_REVISION


def test_sessions_get_the_user_into_their_key(first: str) -> None:
    """All are kept; then another user may have one with the same key."""
    migrate(parse_location(first))
    assert problems_of(first) == []
    add = (
        "INSERT INTO sessions (key, user_id, agent_id, created_at, updated_at) "
        "VALUES ('work\\:chat\\:acme\\:eve', '{}', 'work', 1, 1)"
    )
    with connect(first).begin() as connection:
        query = "SELECT user_id, key, conversation_id, message_count FROM sessions ORDER BY key"
        assert connection.execute(text(query)).all() == [
            ("ada", "oracle:web:bob:default", None, 2),
            ("ada", "work:chat:acme:eve", 1, 4),
        ]
        connection.execute(text(add.format("bob")))
    with connect(first).begin() as connection, pytest.raises(IntegrityError):
        connection.execute(text(add.format("ada")))


async def test_a_budget_of_a_session_is_its_users(first: str) -> None:
    """What two shared is divided by what each has used. Calls that were cut settle as before."""
    await asyncio.to_thread(migrate, parse_location(first))
    with connect(first).connect() as connection:
        query = "SELECT scope, unit, used, held FROM budgets WHERE used + held > 0 ORDER BY 1, 2"
        assert connection.execute(text(query)).all() == [
            ("session:ada:oracle:web:bob:default", "tokens", 10, 0),
            ("session:ada:oracle:web:bob:default", "usd", 250_000_000, 0),
            ("session:ada:work:chat:acme:eve", "tokens", 111, 30),
            ("session:bob:oracle:web:bob:default", "tokens", 7, 9),
            ("user:ada", "tokens", 128, 30),
        ]
    async with await Store.open(first, redact=str) as store:  # the call outside runs is settled
        assert isinstance(await store.runs.claim_next(1), ClaimedRun)
        found = {budget.scope: budget for budget in await budgets_of(store) if budget.used}
    assert found["session:ada:work:chat:acme:eve"].used == 141
    assert found["session:bob:oracle:web:bob:default"].used == 16
    assert not any(budget.reserved for budget in found.values())


async def test_runs_of_an_earlier_schema_go_on(later: str) -> None:
    """The one that was cut is resumed with its journal, then the one that waited, then others."""
    async with await Store.open(later, redact=str) as store:
        assert await store.runs.claimable_lanes() == [1]
        cut = await store.runs.claim_next(1)
        assert isinstance(cut, ClaimedRun)
        assert (cut.run_id, cut.attempt, cut.parent_id) == (3, 2, 2)
        assert cut.pins is None  # they were named then, and not kept
        assert _words(cut) == ["one", "on one", "two", "on two"]
        journal = await store.journals.open(cut)
        assert [step.key for step in await store.journals.list_steps("ada", 3)] == ["read", "pay"]
        assert journal.past_chunks() == []
        assert await ended(store, cut)
        waited = await store.runs.claim_next(1)
        assert isinstance(waited, ClaimedRun)
        assert (waited.run_id, waited.parent_id) == (4, 3)
        assert _words(waited) == ["one", "on one", "two", "on two", "three"]
        assert await ended(store, waited)
        asked = await store.runs.submit(
            RunRequest(user_id="ada", project_id="default", question="five", token_count=10)
        )
        assert isinstance(asked, ClaimedRun)
        assert asked.run_id > 5
        assert _words(asked) == ["one", "on one", "two", "on two", "three", "four"]


def test_a_migration_that_is_cut_changes_nothing(
    later: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns and rows are as before, and the next attempt migrates."""

    def cut(*_: Any, **__: Any) -> None:
        raise RuntimeError("cut")

    with monkeypatch.context() as patch:
        patch.setattr(op, "create_index", cut)
        with pytest.raises(RuntimeError, match="cut"):
            migrate(parse_location(later))
    assert inspect(parse_location(later)).revision == "1001"
    with connect(later).connect() as connection:
        (notice, *_) = connection.execute(text("SELECT * FROM notices")).mappings()
        assert "colour" not in notice
    migrate(parse_location(later))
    assert colours(later) == [(3, ""), (4, "red")]


def _words(run: ClaimedRun) -> list[str]:
    assert isinstance(run.window, Window)
    return [message.content for message in run.window.messages]
