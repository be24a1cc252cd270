"""Messages of sessions: each in its lane, and what becomes of those that come meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dodona.core.domain.agents import QueueMode
from dodona.core.domain.api_tokens import TokenLimits
from dodona.core.domain.conversations.conversation import (
    ClaimedRun,
    NewMessage,
    QueuedRun,
    RunEnd,
    RunOptions,
    RunRequest,
    RunStatus,
    Window,
)
from dodona.core.errors import LaneFull, NotFound
from dodona.store import Store

KEY = "work:chat:acme:bob"


def asking(text: str = "why?", **more: Any) -> RunRequest:
    values = {"user_id": "ada", "project_id": "default", "session_key": KEY, "agent_id": "work"}
    return RunRequest(question=text, token_count=10, **{**values, **more})


async def send(store: Store, text: str = "why?", **more: Any) -> ClaimedRun | QueuedRun:
    return await store.runs.submit(asking(text, **more))


async def end(store: Store, driven: ClaimedRun, text: str = "so.") -> None:
    journal = await store.journals.open(driven)
    answer = NewMessage("assistant", text, 10)
    await journal.end(RunEnd(status=RunStatus.SUCCEEDED, messages=(answer,)))


async def follow(store: Store, asked: ClaimedRun | QueuedRun) -> ClaimedRun:
    found = await store.runs.claim_next(asked.conversation_id, token_budget=5000)
    assert isinstance(found, ClaimedRun)
    return found


async def test_a_message_opens_its_session(store: Store) -> None:
    """A conversation of the agent, in the user's project; the context is not touched."""
    asked = await send(store, token_budget=7000)
    assert isinstance(asked, ClaimedRun)
    brief = asked
    assert (brief.session_key, brief.context.token_budget) == (KEY, 7000)
    session = await store.sessions.get("ada", KEY)
    assert (session.conversation_id, session.agent_id) == (asked.conversation_id, "work")
    talk = await store.conversations.get("ada", asked.conversation_id)
    assert (talk.agent_id, talk.project_id) == ("work", "default")
    with pytest.raises(NotFound):
        await store.contexts.get("ada", "default")


async def test_sessions_and_the_context_are_apart(store: Store) -> None:
    """Each has its conversation and its lane; what was said in one is not known in the other."""
    first = await send(store, "one")
    assert isinstance(first, ClaimedRun)
    await end(store, first)
    others = [
        await send(store, "two", session_key="work:chat:acme:eve"),
        await store.runs.submit(
            RunRequest(user_id="ada", project_id="default", question="three", token_count=10)
        ),
    ]
    again = await send(store, "four")
    assert len({first.conversation_id, *(each.conversation_id for each in others)}) == 3
    assert again.conversation_id == first.conversation_id
    for each in others:
        assert isinstance(each, ClaimedRun)
        assert isinstance(each.window, Window)
        assert each.window.messages == ()
    assert isinstance(again, ClaimedRun)
    assert isinstance(again.window, Window)
    assert [m.content for m in again.window.messages] == ["one", "so."]


async def test_a_session_is_its_owners(store: Store) -> None:
    """Another user's message with the same key starts a lane of its own, with no history."""
    asked = await send(store)
    assert isinstance(asked, ClaimedRun)
    await end(store, asked)
    again = await send(store, "one more")  # ada's lane is busy now
    other = await send(store, user_id="eve")
    assert isinstance(other, ClaimedRun)
    assert isinstance(other.window, Window)
    assert (other.project.user_id, other.window.messages) == ("eve", ())
    assert again.conversation_id == asked.conversation_id != other.conversation_id


async def test_a_waiting_message_keeps_its_token(store: Store) -> None:
    """A message with another token, or without one, is not joined to it: each pays for its own."""
    limits = TokenLimits(budget_tokens=5, agents=frozenset({"work"}), models=frozenset({"m"}))
    tokens = [
        (await store.api_tokens.create("ada", {"chat"}, by="local", limits=each))[0]
        for each in (limits, TokenLimits())
    ]
    mode = {"queueing": QueueMode.COLLECT}
    first = await send(store, "one", **mode)
    assert isinstance(first, ClaimedRun)
    sent = [
        (await send(store, text, token=token, **mode)).run_id
        for text, token in (
            ("two", tokens[0]),
            ("three", tokens[0]),
            ("four", tokens[1]),
            ("five", None),
        )
    ]
    assert sent[0] == sent[1]
    assert len(set(sent)) == 3
    await end(store, first)
    found: list[ClaimedRun] = []
    for _ in range(3):
        found.append(await follow(store, first))
        await end(store, found[-1])
    assert [each.question.content for each in found] == ["two\n\nthree", "four", "five"]
    assert [each.token for each in found] == [*tokens, None]
    assert tokens[0].limits == limits


async def test_an_unknown_project_is_refused(store: Store) -> None:
    """And no session is left behind."""
    with pytest.raises(NotFound, match="no project"):
        await send(store, project_id="nowhere")
    assert await store.sessions.list("ada") == []


async def test_those_that_come_meanwhile_wait(store: Store, second: Store) -> None:
    """In their order, whichever process takes them; each sees what was said before it."""
    first = await send(store, "one")
    assert isinstance(first, ClaimedRun)
    waiting = [await send(each, text) for each, text in ((second, "two"), (store, "three"))]
    assert all(isinstance(each, QueuedRun) for each in waiting)
    await end(store, first)
    for asked, before in zip(waiting, ("one", "two"), strict=True):
        driven = await follow(second, asked)
        assert driven.run_id == asked.run_id
        assert (driven.session_key, driven.context.token_budget) == (KEY, 5000)
        assert isinstance(driven.window, Window)
        assert driven.window.messages[-2].content == before
        await end(second, driven)


async def test_so_many_may_wait_and_no_more(store: Store) -> None:
    """One that is refused leaves nothing behind; when there is room again it is taken."""
    first = await send(store, queue_limit=2)
    assert isinstance(first, ClaimedRun)
    for _ in range(2):
        await send(store, queue_limit=2)
    with pytest.raises(LaneFull, match="2 messages of this conversation are already queued"):
        await send(store, queue_limit=2)
    await end(store, first)
    await follow(store, first)
    assert isinstance(await send(store, queue_limit=2), QueuedRun)


async def test_a_clear_is_a_new_conversation(store: Store) -> None:
    """What runs is answered where it was asked; what is said next begins anew."""
    first = await send(store, "one")
    await store.sessions.clear("ada", KEY)
    second = await send(store, "two")
    assert second.conversation_id != first.conversation_id
    assert isinstance(second, ClaimedRun)


COLLECT = {"queueing": QueueMode.COLLECT}


async def test_what_waits_is_collected(store: Store) -> None:
    """All that came while one was answered is one question, in order, with all its tokens."""
    first = await send(store, "one", **COLLECT)
    assert isinstance(first, ClaimedRun)
    waiting = [await send(store, text, **COLLECT) for text in ("two", "three", "four")]
    assert len({each.run_id for each in waiting}) == 1
    await end(store, first)
    driven = await follow(store, first)
    assert driven.question.content == "two\n\nthree\n\nfour"
    assert driven.question.token_count == 30
    assert (await store.runs.get("ada", driven.run_id)).tokens == 30


async def test_what_asks_for_something_else_is_not_collected(store: Store) -> None:
    """Another model, say: it waits by itself, and what comes then joins it only if it is alike."""
    await send(store, **COLLECT)
    plain = await send(store, "two", **COLLECT)
    wish = {"options": RunOptions(model="x", stop=(".",)), **COLLECT}
    other = await send(store, "three", **wish)
    alike = await send(store, "four", **wish)
    assert plain.run_id != other.run_id == alike.run_id
    peer = await send(store, "five", origin="peer", **COLLECT)
    assert peer.run_id not in (plain.run_id, other.run_id)


async def test_a_collection_has_a_limit(store: Store) -> None:
    await send(store, **COLLECT)
    for _ in range(3):
        await send(store, queue_limit=3, **COLLECT)
    with pytest.raises(LaneFull, match="3 messages"):
        await send(store, queue_limit=3, **COLLECT)


async def test_an_interruption_ends_what_was_before(store: Store) -> None:
    """What runs is asked to end, what waits has ended, and the newest is next."""
    first = await send(store, "one", queueing=QueueMode.INTERRUPT)
    assert isinstance(first, ClaimedRun)
    second = await send(store, "two", queueing=QueueMode.INTERRUPT)
    third = await send(store, "three", queueing=QueueMode.INTERRUPT)
    assert isinstance(second, QueuedRun)
    assert isinstance(third, QueuedRun)
    assert second.interrupted_ids == (first.run_id,)
    assert sorted(third.interrupted_ids) == [first.run_id, second.run_id]
    assert await store.runs.find_cancel_requested([first.run_id]) == [first.run_id]
    assert (await store.runs.get("ada", second.run_id)).status is RunStatus.CANCELLED
    await end(store, first)
    assert (await follow(store, first)).run_id == third.run_id


async def test_hundreds_at_once_lose_nothing(store: Store, second: Store) -> None:
    """Two processes, three sessions: one run at a time in each, every message in one of them."""
    keys = [f"work:chat:acme:{peer}" for peer in ("a", "b", "c")]
    asked = await asyncio.gather(
        *(
            send((store, second)[n % 2], str(n), session_key=keys[n % 3], queueing=how)
            for n in range(120)
            for how in [QueueMode.COLLECT if n % 3 == 2 else QueueMode.QUEUE]
        )
    )
    driven = [each for each in asked if isinstance(each, ClaimedRun)]
    assert len(driven) == 3
    texts: list[str] = []
    for each in asked:
        for message in await store.runs.messages("ada", each.run_id):
            texts += message.content.split("\n\n")
    assert set(texts) == {str(n) for n in range(120)}
