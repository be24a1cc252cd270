"""Sessions are found by user and key, made by the first message, never deleted."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Final

import pytest

from dodona.core.domain.conversations.conversation import ClaimedRun, RunRequest, RunStatus
from dodona.core.domain.conversations.sessions import MAX_KEY_LENGTH, Session
from dodona.core.errors import BadRequest, NotFound
from dodona.store import Store
from dodona.store.conversations.sessions import open_session as open_in
from dodona.store.db.database import Transaction
from dodona.store.projects.projects import Project, Projects
from dodona.store.schema import conversations
from dodona.store.schema import sessions as table
from tests.conformance.store.saying import answer, ended, rows_of
from tests.stored import open_session, record_call

KEY = "oracle:web:local:main"
LIMIT: Final = 40.0  # seconds; a test that waits so long has failed


async def opened(store: Store, key: str = KEY, user_id: str = "ada") -> Session:
    return await open_session(store, user_id, key, agent_id="oracle")


async def answered(store: Store, key: str = KEY, user_id: str = "ada", *, calls: int = 0) -> int:
    """A message of a session and its answer, which took calls of 107 tokens."""
    run = await store.runs.submit(
        RunRequest(user_id=user_id, question="?", token_count=1, session_key=key)
    )
    assert isinstance(run, ClaimedRun)
    for _ in range(calls):
        await record_call(store, user_id, run.run_id, input_tokens=100, output_tokens=7)
    await ended(store, run, RunStatus.SUCCEEDED, answer())
    return run.run_id


async def test_the_first_message_makes_a_session(store: Store) -> None:
    """With a conversation of its agent; nothing is counted yet."""
    with pytest.raises(NotFound, match="there is no session 'oracle:web:local:main'"):
        await store.sessions.get("ada", KEY)
    made = await opened(store)
    assert (made.key, made.user_id, made.agent_id) == (KEY, "ada", "oracle")
    assert (made.message_count, made.input_tokens, made.output_tokens) == (0, 0, 0)
    assert made.conversation_id is not None
    talk = await store.conversations.get("ada", made.conversation_id)
    assert (talk.agent_id, talk.project_id) == ("oracle", "default")
    assert await opened(store) == await store.sessions.get("ada", KEY) == made


async def test_first_messages_at_once_make_one_session(store: Store, second: Store) -> None:
    """And one conversation."""
    both = [store, second]
    found = await asyncio.gather(*(opened(both[n % 2]) for n in range(16)))
    assert len(set(found)) == 1
    assert len(await rows_of(store, conversations)) == len(await rows_of(store, table)) == 1


async def test_a_session_belongs_to_its_owner(store: Store) -> None:
    """To another it does not exist, also not to be cleared."""
    made = await opened(store)
    for attempt in (
        store.sessions.get("bob", KEY),
        store.sessions.clear("bob", KEY),
    ):
        with pytest.raises(NotFound, match="there is no session"):
            await attempt
    assert await store.sessions.list("bob") == []
    assert await store.sessions.get("ada", KEY) == made
    assert len(await rows_of(store, conversations)) == 1


async def test_equal_keys_of_two_users_are_two_sessions(store: Store) -> None:
    """Neither keeps the other from opening, counting, clearing or listing its own."""
    ada, bob = await opened(store), await opened(store, user_id="bob")
    assert (ada.user_id, bob.user_id, ada.key) == ("ada", "bob", bob.key)
    assert ada.conversation_id != bob.conversation_id
    await answered(store, user_id="bob")
    assert await store.sessions.get("ada", KEY) == ada
    cleared = await store.sessions.clear("bob", KEY)
    assert (cleared.message_count, await store.sessions.list("bob")) == (2, [cleared])
    assert await store.sessions.list("ada") == [ada]


async def test_equal_keys_of_two_users_do_not_wait_for_each_other(postgres_url: str) -> None:
    """While a message of one is being stored, a message of the other is stored too."""
    is_open, may_end = threading.Event(), threading.Event()

    def open_and_wait(tx: Transaction) -> None:
        open_in(tx, "ada", KEY, agent_id="oracle", project_id="default")
        is_open.set()
        may_end.wait(LIMIT)

    async with await Store.open(postgres_url, redact=str) as store:
        slow = asyncio.ensure_future(store.database.write(open_and_wait))
        try:
            assert await asyncio.to_thread(is_open.wait, LIMIT)
            async with asyncio.timeout(LIMIT / 2):
                made = await opened(store, user_id="bob")
        finally:
            may_end.set()
            await slow
    assert made.user_id == "bob"


async def test_a_session_can_be_about_a_project(store: Store) -> None:
    """One of the user's own."""
    projects = Projects(store.database)
    await projects.create(Project("ada", "wald"))
    await projects.create(Project("bob", "his"))
    with pytest.raises(NotFound, match="there is no project 'his'"):
        await open_session(store, "ada", KEY, agent_id="oracle", project_id="his")
    assert await store.sessions.list("ada") == []
    made = await open_session(store, "ada", KEY, agent_id="oracle", project_id="wald")
    cleared = await store.sessions.clear("ada", KEY)
    for session in (made, cleared):
        assert session.conversation_id is not None
        talk = await store.conversations.get("ada", session.conversation_id)
        assert talk.project_id == "wald"


async def test_clearing_starts_a_new_conversation(store: Store) -> None:
    """The old one stays, and so does what was counted."""
    made = await opened(store)
    await answered(store)
    cleared = await store.sessions.clear("ada", KEY)
    assert cleared.conversation_id not in (None, made.conversation_id)
    assert (cleared.message_count, cleared.created_at) == (2, made.created_at)
    assert await opened(store) == cleared
    assert made.conversation_id is not None
    await store.conversations.get("ada", made.conversation_id)


async def test_a_deleted_conversation_is_replaced(store: Store) -> None:
    """By the next message, or by clearing; the session stays."""
    made = await opened(store)
    assert made.conversation_id is not None
    await store.conversations.delete("ada", made.conversation_id)
    assert (await store.sessions.get("ada", KEY)).conversation_id is None
    again = await opened(store)
    assert again.conversation_id is not None
    await store.conversations.delete("ada", again.conversation_id)
    assert (await store.sessions.clear("ada", KEY)).conversation_id is not None


async def test_a_run_that_ends_is_counted(store: Store) -> None:
    """Its messages, and the tokens that the meter has settled, in the transaction that ends it."""
    made = await opened(store)
    assert made.conversation_id is not None
    other = await opened(store, user_id="bob")
    run_id = await answered(store, calls=2)
    found = await store.sessions.get("ada", KEY)
    assert found.updated_at >= made.updated_at
    assert replace(found, updated_at=made.updated_at) == replace(
        made, message_count=2, input_tokens=200, output_tokens=14
    )
    assert await store.sessions.get("bob", KEY) == other
    (listed,) = await store.runs.list("ada", limit=1)
    assert (listed.run.id, listed.tokens) == (run_id, 214)


async def test_sessions_are_listed_the_latest_first(store: Store) -> None:
    """A user's own, page by page."""
    for peer in ("a", "b", "c"):
        await opened(store, f"oracle:web:local:{peer}")
    await opened(store, "oracle:web:local:bob", "bob")
    await answered(store, "oracle:web:local:a")
    pages = [await store.sessions.list("ada", limit=2, skip=skip) for skip in (0, 2)]
    assert [[each.key[-1] for each in page] for page in pages] == [["a", "c"], ["b"]]


@pytest.mark.parametrize("key", ["", "🌳" * (MAX_KEY_LENGTH + 1)], ids=["empty", "too long"])
async def test_a_key_has_a_length(store: Store, key: str) -> None:
    with pytest.raises(BadRequest, match=r"a session key must have 1 to 512 characters"):
        await opened(store, key)


async def test_the_longest_key_fits_into_an_index(store: Store) -> None:
    made = await opened(store, "🌳" * MAX_KEY_LENGTH)
    assert (await store.sessions.get("ada", "🌳" * MAX_KEY_LENGTH)) == made
