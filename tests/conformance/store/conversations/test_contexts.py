"""A context is what a user talks about in a project; there is one, and it has a status."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from time import time

import pytest

from dodona.core.domain.conversations.conversation import RunStatus
from dodona.core.errors import BadRequest, NotFound
from dodona.store import Store
from dodona.store.conversations.contexts import (
    MAX_DECISIONS,
    Contexts,
    ContextStatus,
    touch_context,
)
from dodona.store.projects.projects import Project, Projects
from dodona.store.schema import conversations, oracle_contexts
from tests.conformance.store.saying import answer, asked, ended, rows_of, said

ACTIVE, SUSPENDED, CLOSED = ContextStatus


@pytest.fixture
def contexts(store: Store) -> Contexts:
    return Contexts(store.database)


async def begun(contexts: Contexts, user_id: str = "ada") -> int:
    """The conversation of a context that was opened."""
    found = (await contexts.open(user_id, "default")).conversation_id
    assert found is not None
    return found


async def test_the_first_question_makes_a_context(store: Store, contexts: Contexts) -> None:
    """Active, empty, with a conversation of its own; there was none before."""
    with pytest.raises(NotFound, match="there is no context for project 'default'"):
        await contexts.get("ada", "default")
    before = time()
    made = await contexts.open("ada", "default")
    assert await contexts.get("ada", "default") == made
    assert (made.status, made.token_budget, made.tokens_used) == (ACTIVE, 16_000, 0)
    assert (made.key_decisions, made.last_model, made.compression_count) == ((), None, 0)
    assert before <= made.session_start <= time()
    assert made.conversation_id is not None
    talk = await store.conversations.get("ada", made.conversation_id)
    assert (talk.project_id, talk.agent_id, talk.head_id) == ("default", "oracle", None)


async def test_the_next_question_finds_it(contexts: Contexts) -> None:
    """As it is, whatever its status, but for when something happened last."""
    made = await contexts.open("ada", "default", token_budget=4000)
    again = await contexts.open("ada", "default", token_budget=128_000)
    assert replace(again, last_activity=made.last_activity) == made
    suspended = await contexts.set_status("ada", "default", SUSPENDED)
    found = await contexts.open("ada", "default")
    assert (found.status, found.conversation_id) == (SUSPENDED, suspended.conversation_id)


async def test_first_questions_at_once_make_one_context(store: Store, second: Store) -> None:
    """And one conversation."""
    both = [Contexts(store.database), Contexts(second.database)]
    found = await asyncio.gather(*(both[n % 2].open("ada", "default") for n in range(16)))
    assert len({(each.id, each.conversation_id) for each in found}) == 1
    assert len(await rows_of(store, conversations)) == 1
    assert len(await rows_of(store, oracle_contexts)) == 1


async def test_each_user_and_project_has_its_own(store: Store, contexts: Contexts) -> None:
    await Projects(store.database).create(Project("ada", "wald"))
    found = [
        await contexts.open("ada", "default"),
        await contexts.open("ada", "wald"),
        await contexts.open("bob", "default"),
    ]
    assert len({each.id for each in found}) == len({each.conversation_id for each in found}) == 3


async def test_the_project_must_be_the_users(store: Store, contexts: Contexts) -> None:
    """Another's is not found, and no context is made for it."""
    await Projects(store.database).create(Project("bob", "wald"))
    with pytest.raises(NotFound, match="there is no project 'wald'"):
        await contexts.open("ada", "wald")
    await contexts.open("bob", "wald")
    with pytest.raises(NotFound):
        await contexts.get("ada", "wald")
    with pytest.raises(NotFound):
        await contexts.set_status("ada", "wald", CLOSED)


@pytest.mark.parametrize("budget", [3999, 128_001, -1])
async def test_a_budget_has_bounds(contexts: Contexts, budget: int) -> None:
    with pytest.raises(BadRequest) as refused:
        await contexts.open("ada", "default", token_budget=budget)
    assert str(refused.value) == f"token_budget must be from 4000 to 128000 (got {budget})."


@pytest.mark.parametrize(
    ("path", "to", "allowed"),
    [
        ((), SUSPENDED, True),
        ((), CLOSED, True),
        ((), ACTIVE, False),
        ((SUSPENDED,), ACTIVE, True),
        ((SUSPENDED,), CLOSED, True),
        ((SUSPENDED,), SUSPENDED, False),
        ((CLOSED,), ACTIVE, False),
        ((CLOSED,), SUSPENDED, False),
        ((CLOSED,), CLOSED, False),
    ],
)
async def test_what_may_become_what(
    contexts: Contexts, *, path: tuple[ContextStatus, ...], to: ContextStatus, allowed: bool
) -> None:
    """A closed one only becomes active by the next question."""
    await contexts.open("ada", "default")
    for step in path:
        await contexts.set_status("ada", "default", step)
    before = await contexts.get("ada", "default")
    if allowed:
        assert await contexts.set_status("ada", "default", to) == replace(before, status=to)
    else:
        words = f"a context that is {before.status.value} cannot become {to.value}."
        with pytest.raises(BadRequest) as refused:
            await contexts.set_status("ada", "default", to)
        assert str(refused.value) == words
        assert await contexts.get("ada", "default") == before


async def test_a_closed_one_begins_anew(store: Store, contexts: Contexts) -> None:
    """The same context, empty, in a new conversation; the old one stays to be read."""
    old = await begun(contexts)
    await contexts.touch("ada", old, model="oak", tokens_used=9000)
    await contexts.add_decisions("ada", old, ["plant oaks"])
    before = await contexts.set_status("ada", "default", CLOSED)
    after = await contexts.open("ada", "default", token_budget=4000)
    assert after.id == before.id
    assert after.conversation_id not in (None, old)
    assert (after.status, after.token_budget, after.tokens_used) == (ACTIVE, 4000, 0)
    assert (after.key_decisions, after.last_model) == ((), None)
    assert after.session_start >= before.session_start
    await store.conversations.get("ada", old)


async def test_a_deleted_conversation_is_replaced(store: Store, contexts: Contexts) -> None:
    """By the next question; what was decided in it is forgotten with it."""
    old = await begun(contexts)
    await contexts.add_decisions("ada", old, ["plant oaks"])
    await store.conversations.delete("ada", old)
    assert (await contexts.get("ada", "default")).conversation_id is None
    after = await contexts.open("ada", "default")
    assert after.key_decisions == ()
    assert after.conversation_id is not None
    await store.conversations.get("ada", after.conversation_id)


async def test_a_run_that_ends_touches_its_context(store: Store, contexts: Contexts) -> None:
    """In the transaction that ends it."""
    opened = await contexts.open("ada", "default")
    assert opened.conversation_id is not None
    talk = await store.conversations.get("ada", opened.conversation_id)
    claim = await asked(store, talk)
    await ended(
        store,
        claim,
        RunStatus.SUCCEEDED,
        answer(),
        also=[lambda tx: touch_context(tx, "ada", talk.id, model="oak", tokens_used=15)],
    )
    touched = await contexts.get("ada", "default")
    assert (touched.last_model, touched.tokens_used) == ("oak", 15)
    assert touched.last_activity is not None
    assert touched.last_activity >= (opened.last_activity or 0)


async def test_only_the_open_context_of_that_conversation_is_touched(contexts: Contexts) -> None:
    """A run that ends after its context was closed, or began anew, changes nothing there."""
    old = await begun(contexts)
    assert not await contexts.touch("bob", old, model="m", tokens_used=1)
    assert not await contexts.add_decisions("bob", old, ["his"])
    closed = await contexts.set_status("ada", "default", CLOSED)
    assert not await contexts.touch("ada", old, model="m", tokens_used=1)
    assert not await contexts.add_decisions("ada", old, ["late"])
    assert await contexts.get("ada", "default") == closed
    anew = await contexts.open("ada", "default")
    assert not await contexts.touch("ada", old, model="m", tokens_used=1)
    assert await contexts.get("ada", "default") == anew


async def test_a_context_holds_at_most_110_percent(contexts: Contexts) -> None:
    """The last token of that is allowed; past it is an error in words."""
    talk = await begun(contexts)
    assert await contexts.touch("ada", talk, model="oak", tokens_used=17_600)
    with pytest.raises(BadRequest) as refused:
        await contexts.touch("ada", talk, model="elm", tokens_used=17_601)
    assert str(refused.value) == (
        "the context has 17,601 tokens, more than 110 % of its budget of 16,000. "
        "Omit older exchanges."
    )
    kept = await contexts.get("ada", "default")
    assert (kept.tokens_used, kept.last_model) == (17_600, "oak")


async def test_decisions_are_remembered_once(contexts: Contexts) -> None:
    """The newest last; what is decided again is new again."""
    talk = await begun(contexts)
    assert await contexts.add_decisions("ada", talk, ["oaks 🌳", "elms"])
    assert await contexts.add_decisions("ada", talk, ["yews", "oaks 🌳", "yews"])
    found = (await contexts.get("ada", "default")).key_decisions
    assert found == ("elms", "yews", "oaks 🌳")


async def test_the_newest_decisions_are_kept(contexts: Contexts) -> None:
    """However many a model makes of them."""
    talk = await begun(contexts)
    await contexts.add_decisions("ada", talk, [f"decision {n}" for n in range(MAX_DECISIONS)])
    await contexts.add_decisions("ada", talk, ["one", "more"])
    found = (await contexts.get("ada", "default")).key_decisions
    assert len(found) == MAX_DECISIONS
    assert (found[0], found[-2:]) == ("decision 2", ("one", "more"))


async def test_decisions_at_once_lose_nothing(store: Store, second: Store) -> None:
    both = [Contexts(store.database), Contexts(second.database)]
    talk = await begun(both[0])
    await asyncio.gather(*(both[n % 2].add_decisions("ada", talk, [f"{n}"]) for n in range(12)))
    found = (await both[0].get("ada", "default")).key_decisions
    assert sorted(found, key=int) == [f"{n}" for n in range(12)]


async def test_idle_contexts_close(contexts: Contexts) -> None:
    """Active or suspended, whosever they are; those closed before are not counted."""
    for user in ("ada", "bob", "eve"):
        await contexts.open(user, "default")
    await contexts.set_status("bob", "default", SUSPENDED)
    await contexts.set_status("eve", "default", CLOSED)
    assert await contexts.close_idle(time() - 60) == 0
    assert await contexts.close_idle(time() + 60) == 2
    for user in ("ada", "bob"):
        assert (await contexts.get(user, "default")).status is CLOSED


async def test_a_context_in_which_something_goes_on_is_not_idle(
    store: Store, contexts: Contexts
) -> None:
    """A question that waits for its turn, or for a person, keeps it open; then it closes."""
    talk = await store.conversations.get("ada", await begun(contexts))
    await begun(contexts, "bob")
    node = await store.runs.accept("ada", talk.id, said("?"))
    assert await contexts.close_idle(time() + 60) == 1
    assert (await contexts.get("ada", "default")).status is ACTIVE
    await store.runs.cancel("ada", node.id)
    assert await contexts.close_idle(time() + 60) == 1
