"""A client that recites what was said goes on where that was said, and alone."""

from __future__ import annotations

import asyncio

import pytest

from dodona.agent.requests.client_history import digest_of
from dodona.core.domain.budgets import TokenRecord
from dodona.core.domain.conversations.conversation import Conversation, NewMessage, RunStatus
from dodona.core.errors import BadRequest, NotFound
from dodona.store import Store
from dodona.store.db.location import parse_location
from dodona.store.integrity import check
from dodona.store.schema import conversations, runs, sessions
from tests.conformance.store.saying import answer, asked, ended, rows_of, said
from tests.stored import add_record

KEY = "oracle:v1:ada:1"
PAST = ((said("one"), *answer("on one")), (said("two"), *answer("on two")))
DIGEST = digest_of("oracle", [["one", "on one"], ["two", "on two"]])


async def begun(
    store: Store, key: str = KEY, past: tuple[tuple[NewMessage, ...], ...] = PAST
) -> Conversation:
    session = await store.client_histories.import_session(
        "ada", key, agent_id="oracle", project_id="default", exchanges=past
    )
    assert session.conversation_id is not None
    return await store.conversations.get("ada", session.conversation_id)


async def kept(store: Store, key: str = KEY) -> Conversation:
    """A conversation that can be found."""
    talk = await begun(store, key)
    assert talk.head_id is not None
    await store.client_histories.save_digest("ada", talk.head_id, DIGEST)
    return talk


def test_a_digest_is_that_of_the_texts() -> None:
    """Where one text ends and the next begins counts; so do lists. What UTF-8 has not is taken."""
    digests = {
        digest_of("a", "b"),
        digest_of("ab"),
        digest_of("a", ["b"]),
        digest_of(["a", "b"]),
        digest_of("a\ud800", "b"),
    }
    assert len(digests) == 5
    assert digest_of("a", "b") in digests
    assert {len(each) for each in digests} == {64}


async def test_a_conversation_begins_with_its_past(store: Store, url: str) -> None:
    """Each exchange is a run; the head is the last of them, and a window has all of it."""
    talk = await begun(store)
    window = await store.conversations.load_window("ada", talk.id, budget=1000)
    assert [message.content for message in window.messages] == ["one", "on one", "two", "on two"]
    first, last = await rows_of(store, runs)
    assert [first["parent_id"], last["parent_id"]] == [None, first["id"]]
    assert {(row["status"], row["origin"]) for row in (first, last)} == {("succeeded", "user")}
    assert window.head_id == last["id"]
    problems = await asyncio.to_thread(
        lambda: [each.problems for each in check(parse_location(url))]
    )
    assert not any(problems)


async def test_a_past_may_be_empty(store: Store) -> None:
    talk = await begun(store, past=())
    assert talk.head_id is None


async def test_a_past_is_there_as_a_whole_or_not_at_all(store: Store) -> None:
    """A message that cannot be kept keeps nothing."""
    with pytest.raises(BadRequest, match="the user message is empty"):
        await begun(store, past=(*PAST, (NewMessage("user", "", 1),)))
    assert await rows_of(store, conversations) == await rows_of(store, sessions) == []


async def test_what_has_begun_gets_no_other_past(store: Store) -> None:
    """Not even when two begin it at once."""
    found = await asyncio.gather(*(begun(store) for _ in range(4)), return_exceptions=True)
    assert sum(isinstance(each, Conversation) for each in found) == 1
    assert sum(isinstance(each, BadRequest) for each in found) == 3
    assert len(await rows_of(store, runs)) == 2


async def test_a_conversation_is_found_once(store: Store, second: Store) -> None:
    """Of many who recite the same at once, in two processes, one has it."""
    await kept(store)
    both = (store, second)
    found = await asyncio.gather(
        *(both[n % 2].client_histories.claim_session("ada", DIGEST) for n in range(12))
    )
    assert sorted(filter(None, found)) == [KEY]


async def test_of_several_all_are_found(store: Store) -> None:
    """The newest first."""
    for number in ("1", "2"):
        await kept(store, f"oracle:v1:ada:{number}")
    found = [await store.client_histories.claim_session("ada", DIGEST) for _ in range(3)]
    assert found == ["oracle:v1:ada:2", "oracle:v1:ada:1", None]


async def test_another_users_is_not_found(store: Store) -> None:
    """Nor can it be marked."""
    talk = await kept(store)
    assert await store.client_histories.claim_session("bob", DIGEST) is None
    assert talk.head_id is not None
    with pytest.raises(NotFound):
        await store.client_histories.save_digest("bob", talk.head_id, DIGEST)


async def test_one_that_went_on_is_not_found(store: Store) -> None:
    """Nor one in which a question waits, or that its session has left."""
    talk = await kept(store)
    claim = await asked(store, talk)
    assert await store.client_histories.claim_session("ada", DIGEST) is None
    await ended(store, claim, RunStatus.SUCCEEDED, answer())
    assert await store.client_histories.claim_session("ada", DIGEST) is None
    await kept(store, "oracle:v1:ada:2")
    await store.sessions.clear("ada", "oracle:v1:ada:2")
    assert await store.client_histories.claim_session("ada", DIGEST) is None


async def test_the_calls_of_a_run_are_on_record(store: Store) -> None:
    """Those of that run, for its user."""
    talk = await begun(store)
    claim = await asked(store, talk)
    other = (await begun(store, "oracle:v1:ada:2")).head_id
    for run_id, tokens in ((claim.run_id, 10), (claim.run_id, 20), (other, 40), (None, 80)):
        entry = TokenRecord("ada", "oracle", "p", "m", tokens, 1, None, run_id=run_id)
        await add_record(store, entry)
    found = await store.records.list_for_run("ada", claim.run_id)
    assert [each.input_tokens for each in found] == [10, 20]
    with pytest.raises(NotFound):
        await store.records.list_for_run("bob", claim.run_id)
