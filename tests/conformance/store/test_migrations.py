"""A store that an older Dodona left is brought to this version with all that is in it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from alembic import command, op
from sqlalchemy import text

from dodona.core.domain.approvals import Decision
from dodona.core.domain.conversations.conversation import ClaimedRun, RunRequest, Window
from dodona.core.domain.notices import Deferral, DeferUntil, NewNotice, StoredNotice
from dodona.core.events import Event, Severity
from dodona.store import Store, inspect, migrate, parse_location
from dodona.store.db.migrate import NEWEST_REVISION, REVISIONS
from dodona.store.integrity import check
from dodona.store.schema import runs
from tests.conformance.store.saying import approval, ended, rows_of
from tests.conformance.store.test_schema import connect

# What 0001 held: two users, three runs in a chain, one of them cut, one that waits.
FIRST = """
INSERT INTO conversations (id, user_id, project_id, created_at, updated_at) VALUES
  (1, 'ada', 'default', 1, 1), (2, 'bob', 'default', 1, 1);
INSERT INTO runs (id, conversation_id, parent_id, follows_head, status, attempt, owner, pins_hash,
  tokens, created_at, started_at, ended_at) VALUES
  (1, 1, NULL, true, 'succeeded', 1, NULL, 'abc', 20, 1, 1, 2),
  (2, 1, 1, true, 'succeeded', 1, NULL, NULL, 20, 3, 3, 4),
  (3, 1, 2, true, 'running', 1, 'host:1:dead', 'abc', 10, 5, 5, NULL),
  (4, 1, NULL, true, 'queued', 0, NULL, NULL, 10, 6, NULL, NULL),
  (5, 2, NULL, true, 'succeeded', 1, NULL, NULL, 20, 1, 1, 2);
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
INSERT INTO notices (id, user_id, project_id, run_id, event_type, severity, content, created_at,
  delivered_at) VALUES
  (3, 'ada', 'default', 1, 'self.notify', 'info', 'say "hello" to 🌳', 2, NULL),
  (4, 'ada', 'default', NULL, 'source.stale', 'warning', 'old', 3, 4),
  (5, 'bob', 'default', 5, 'self.notify', 'error', 'his', 4, NULL);
INSERT INTO plugin_state (user_id, plugin, key, value_json) VALUES ('ada', 'p', 'k', '[1]');
INSERT INTO threads (id, user_id, project_id, title, created_at, updated_at)
VALUES (1, 'ada', 'default', 'Trees', 1, 1);
INSERT INTO thread_entries (id, thread_id, author, entry_type, content, created_at)
VALUES (1, 1, 'user', 'thought', 'oaks', 1);
"""
# Ids were given by hand: PostgreSQL does not count those.
COUNT_ON = "SELECT setval(pg_get_serial_sequence('{0}', 'id'), (SELECT max(id) FROM {0}))"


def migrate_to(url: str, revision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the Dodona did that knew nothing newer."""
    upgrade: Any = command.upgrade
    with monkeypatch.context() as patch:
        patch.setattr(command, "upgrade", lambda config, _: upgrade(config, revision))
        migrate(parse_location(url))
    assert inspect(parse_location(url)).revision == revision


def make_first(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store as the first Dodona made it, with something in it."""
    migrate_to(url, "0001", monkeypatch)
    with connect(url).begin() as connection:
        for line in filter(None, map(str.strip, FIRST.split(";\n"))):
            connection.execute(text(line.replace(":", "\\:")))
        if url.startswith("postgresql:"):
            for table in ("conversations", "runs", "messages", "notices", "threads"):
                connection.execute(text(COUNT_ON.format(table)))


@pytest.fixture
def first(url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    make_first(url, monkeypatch)
    return url


@pytest.fixture(params=REVISIONS[:-1])
def older(first: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store of each schema before this one, with the same in it."""
    if request.param != REVISIONS[0]:
        migrate_to(first, request.param, monkeypatch)
    return first


async def test_a_store_of_the_first_schema_is_migrated(first: str) -> None:
    """Nothing is lost, nothing is wrong with it, and runs know whose they are."""
    async with await Store.open(first, redact=str) as store:
        kept = {row["id"]: row for row in await rows_of(store, runs)}
        listed = await store.runs.list("ada", limit=10)
        said_in = [message.content for message in await store.runs.messages("ada", 1)]
    assert (await asyncio.to_thread(inspect, parse_location(first))).revision == NEWEST_REVISION
    problems = await asyncio.to_thread(
        lambda: [each.problems for each in check(parse_location(first))]
    )
    assert not any(problems)
    assert {number: row["user_id"] for number, row in kept.items()} == {
        **dict.fromkeys((1, 2, 3, 4), "ada"),
        5: "bob",
    }
    assert {row["window_from"] for row in kept.values()} == {None}
    assert [(each.run.id, each.question) for each in listed] == [
        (4, "four"),
        (3, "three"),
        (2, "two"),
        (1, "one"),
    ]
    assert said_in == ["one", "on one"]


async def test_runs_of_the_first_schema_go_on(first: str) -> None:
    """The one that was cut is resumed with its journal, then the one that waited, then others."""
    async with await Store.open(first, redact=str) as store:
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


async def test_what_any_older_schema_held_is_kept(older: str) -> None:
    """Notices become events that say what they said; threads and states are as they were."""
    async with await Store.open(older, redact=str) as store:
        listed = await store.notices.list("ada", limit=10)
        (his,) = await store.notices.pending("bob", "default")
        waiting = await store.notices.pending("ada", "default")
        assert await store.pack_state.all("ada") == {"p": {"k": [1]}}
        (entry,) = (await store.threads.read("ada", "default", 1)).entries
        new = await store.notices.put(
            NewNotice(
                user_id="ada",
                project_id="default",
                event=Event("self.notify", "test"),
                due=Deferral(DeferUntil.SESSION),
            )
        )
        asked = await store.approvals.request("ada", approval(run_id=3))
    assert entry.content == "oaks"
    assert new.id == 6
    assert asked.decision is Decision.PENDING
    assert listed == [
        StoredNotice(
            id=4,
            project_id="default",
            event=Event(
                "source.stale",
                "store",
                Severity.WARNING,
                {"message": "old"},
                timestamp=3.0,
                id="notice-4",
            ),
            due=Deferral(DeferUntil.SESSION),
            run_id=None,
            created_at=3.0,
            delivered_at=4.0,
        ),
        *waiting,
    ]
    (first,) = waiting
    assert (first.id, first.run_id, first.delivered_at) == (3, 1, None)
    assert first.event.payload == {"message": 'say "hello" to 🌳'}
    assert (his.id, his.event.severity) == (5, Severity.ERROR)
    problems = await asyncio.to_thread(
        lambda: [each.problems for each in check(parse_location(older))]
    )
    assert not any(problems)


async def test_a_migration_that_is_cut_changes_nothing(
    older: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notices that were taken out are there again, and the next one migrates."""
    before = await asyncio.to_thread(lambda: inspect(parse_location(older)).revision)

    def cut(*_: Any, **__: Any) -> None:
        raise RuntimeError("cut")

    with monkeypatch.context() as patch:
        # Where notices are put back, or later: whatever the last migration does.
        patch.setattr(op, "bulk_insert" if before < "0004" else "create_index", cut)
        with pytest.raises(RuntimeError, match="cut"):
            await asyncio.to_thread(migrate, parse_location(older))

    def notices() -> list[int]:
        assert inspect(parse_location(older)).revision == before
        with connect(older).connect() as connection:
            return [row[0] for row in connection.execute(text("SELECT id FROM notices"))]

    assert len(await asyncio.to_thread(notices)) == 3
    async with await Store.open(older, redact=str) as store:
        assert len(await store.notices.list("ada", limit=10)) == 2


def _words(run: ClaimedRun) -> list[str]:
    assert isinstance(run.window, Window)
    return [message.content for message in run.window.messages]
