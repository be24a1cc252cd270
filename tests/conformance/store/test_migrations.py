"""A store that an older Dodona left is brought to this version with all that is in it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from alembic import command
from sqlalchemy import text

from dodona.core.conversation import Asking, Driven
from dodona.store import Store, locate, look, migrate
from dodona.store.check import check
from dodona.store.migrate import NEWEST
from dodona.store.schema import runs
from tests.conformance.store.saying import ended, rows_of, said
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
"""
# Ids were given by hand: PostgreSQL does not count those.
COUNT_ON = "SELECT setval(pg_get_serial_sequence('{0}', 'id'), (SELECT max(id) FROM {0}))"


def make_first(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store as the first Dodona made it, with something in it."""
    upgrade: Any = command.upgrade
    with monkeypatch.context() as patch:
        patch.setattr(command, "upgrade", lambda config, _: upgrade(config, "0001"))
        migrate(locate(url))
    assert look(locate(url)).revision == "0001"
    with connect(url).begin() as connection:
        for line in filter(None, map(str.strip, FIRST.split(";\n"))):
            connection.execute(text(line.replace(":", "\\:")))
        if url.startswith("postgresql:"):
            for table in ("conversations", "runs", "messages"):
                connection.execute(text(COUNT_ON.format(table)))


@pytest.fixture
def first(url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    make_first(url, monkeypatch)
    return url


async def test_a_store_of_the_first_schema_is_migrated(first: str) -> None:
    """Nothing is lost, nothing is wrong with it, and runs know whose they are."""
    async with await Store.open(first, hide=str) as store:
        kept = {row["id"]: row for row in await rows_of(store, runs)}
        listed = await store.runs.list("ada", limit=10)
        said_in = [message.content for message in await store.runs.messages("ada", 1)]
    assert (await asyncio.to_thread(look, locate(first))).revision == NEWEST
    problems = await asyncio.to_thread(lambda: [each.problems for each in check(locate(first))])
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
    async with await Store.open(first, hide=str) as store:
        assert await store.runs.open_lanes() == [1]
        cut = await store.runs.drive(1)
        assert isinstance(cut, Driven)
        assert (cut.claim.run_id, cut.claim.attempt, cut.claim.parent_id) == (3, 2, 2)
        assert cut.brief.pins is None  # they were named then, and not kept
        assert _words(cut) == ["one", "on one", "two", "on two"]
        journal = await store.journals.open(cut.claim)
        assert [step.key for step in await store.journals.steps("ada", 3)] == ["read", "pay"]
        assert journal.past_chunks() == []
        assert await ended(store, cut.claim)
        waited = await store.runs.drive(1)
        assert isinstance(waited, Driven)
        assert (waited.claim.run_id, waited.claim.parent_id) == (4, 3)
        assert _words(waited) == ["one", "on one", "two", "on two", "three"]
        assert await ended(store, waited.claim)
        asked = await store.runs.ask(
            Asking(user_id="ada", project_id="default", message=said("five"))
        )
        assert asked.driven is not None
        assert asked.run_id > 5
        assert _words(asked.driven) == ["one", "on one", "two", "on two", "three", "four"]


def _words(run: Driven) -> list[str]:
    assert run.brief.window is not None
    return [message.content for message in run.brief.window.messages]
