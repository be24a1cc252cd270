"""A context is what a user talks about in a project; there is one, and it has a status."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from time import time
from typing import Any

import pytest

from dodona.core.domain.conversations.conversation import NewSummary, RunEnd, RunStatus
from dodona.core.domain.trust import Mark
from dodona.core.errors import BadRequest, Conflict, NotFound
from dodona.core.messages import Origin
from dodona.store import Store
from dodona.store.conversations.contexts import (
    MAX_DECISIONS,
    ContextStatus,
)
from dodona.store.projects.projects import Project, Projects
from dodona.store.schema import conversations, oracle_contexts
from tests.conformance.store.saying import answer, asked, exchange, rows_of, said
from tests.stored import open_context

ACTIVE, SUSPENDED, CLOSED = ContextStatus


async def begun(store: Store, user_id: str = "ada") -> int:
    """The conversation of a context that was opened."""
    found = (await open_context(store, user_id, "default")).conversation_id
    assert found is not None
    return found


def ending(**results: Any) -> RunEnd:
    """The end of a run that a model answered."""
    given = {"status": RunStatus.SUCCEEDED, "messages": tuple(answer()), "model": "oak"}
    return RunEnd(**{**given, **results})


async def answered(store: Store, **results: Any) -> bool:
    """A question in the context of ada that is answered; did the head move?"""
    context = await open_context(store, "ada", "default")
    assert context.conversation_id is not None
    talk = await store.conversations.get("ada", context.conversation_id)
    journal = await store.journals.open(await asked(store, talk))
    return await journal.end(ending(**results)) is not None


async def test_the_first_question_makes_a_context(store: Store) -> None:
    """Active, empty, with a conversation of its own; there was none before."""
    with pytest.raises(NotFound, match="there is no context for project 'default'"):
        await store.contexts.get("ada", "default")
    before = time()
    made = await open_context(store, "ada", "default")
    assert await store.contexts.get("ada", "default") == made
    assert (made.status, made.token_budget, made.tokens_used) == (ACTIVE, 16_000, 0)
    assert (made.key_decisions, made.last_model, made.compression_count) == ((), None, 0)
    assert before <= made.session_start <= time()
    assert made.conversation_id is not None
    talk = await store.conversations.get("ada", made.conversation_id)
    assert (talk.project_id, talk.agent_id, talk.head_id) == ("default", "oracle", None)


async def test_the_next_question_finds_it(store: Store) -> None:
    """As it is, whatever its status, but for when something happened last."""
    made = await open_context(store, "ada", "default", token_budget=4000)
    again = await open_context(store, "ada", "default", token_budget=128_000)
    assert replace(again, last_activity=made.last_activity) == made
    suspended = await store.contexts.set_status("ada", "default", SUSPENDED)
    found = await open_context(store, "ada", "default")
    assert (found.status, found.conversation_id) == (SUSPENDED, suspended.conversation_id)


async def test_first_questions_at_once_make_one_context(store: Store, second: Store) -> None:
    """And one conversation."""
    both = [store, second]
    found = await asyncio.gather(*(open_context(both[n % 2], "ada", "default") for n in range(16)))
    assert len({(each.id, each.conversation_id) for each in found}) == 1
    assert len(await rows_of(store, conversations)) == 1
    assert len(await rows_of(store, oracle_contexts)) == 1


async def test_each_user_and_project_has_its_own(store: Store) -> None:
    await Projects(store.database).create(Project("ada", "wald"))
    found = [
        await open_context(store, "ada", "default"),
        await open_context(store, "ada", "wald"),
        await open_context(store, "bob", "default"),
    ]
    assert len({each.id for each in found}) == len({each.conversation_id for each in found}) == 3


async def test_the_project_must_be_the_users(store: Store) -> None:
    """Another's is not found, and no context is made for it."""
    await Projects(store.database).create(Project("bob", "wald"))
    with pytest.raises(NotFound, match="there is no project 'wald'"):
        await open_context(store, "ada", "wald")
    await open_context(store, "bob", "wald")
    with pytest.raises(NotFound):
        await store.contexts.get("ada", "wald")
    with pytest.raises(NotFound):
        await store.contexts.set_status("ada", "wald", CLOSED)


@pytest.mark.parametrize("budget", [3999, 128_001, -1])
async def test_a_budget_has_bounds(store: Store, budget: int) -> None:
    with pytest.raises(BadRequest) as refused:
        await open_context(store, "ada", "default", token_budget=budget)
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
    store: Store, *, path: tuple[ContextStatus, ...], to: ContextStatus, allowed: bool
) -> None:
    """A closed one only becomes active by the next question."""
    await open_context(store, "ada", "default")
    for step in path:
        await store.contexts.set_status("ada", "default", step)
    before = await store.contexts.get("ada", "default")
    if allowed:
        assert await store.contexts.set_status("ada", "default", to) == replace(before, status=to)
    else:
        words = f"a context that is {before.status.value} cannot become {to.value}."
        with pytest.raises(BadRequest) as refused:
            await store.contexts.set_status("ada", "default", to)
        assert str(refused.value) == words
        assert await store.contexts.get("ada", "default") == before


async def test_a_closed_one_begins_anew(store: Store) -> None:
    """The same context, empty, in a new conversation; the old one stays to be read."""
    old = await begun(store)
    await answered(store, context_tokens=9000, decisions=("plant oaks",))
    before = await store.contexts.set_status("ada", "default", CLOSED)
    after = await open_context(store, "ada", "default", token_budget=4000)
    assert after.id == before.id
    assert after.conversation_id not in (None, old)
    assert (after.status, after.token_budget, after.tokens_used) == (ACTIVE, 4000, 0)
    assert (after.key_decisions, after.last_model) == ((), None)
    assert after.session_start >= before.session_start
    await store.conversations.get("ada", old)


async def test_a_deleted_conversation_is_replaced(store: Store) -> None:
    """By the next question; what was decided in it is forgotten with it."""
    old = await begun(store)
    await answered(store, decisions=("plant oaks",))
    await store.conversations.delete("ada", old)
    assert (await store.contexts.get("ada", "default")).conversation_id is None
    after = await open_context(store, "ada", "default")
    assert after.key_decisions == ()
    assert after.conversation_id is not None
    await store.conversations.get("ada", after.conversation_id)


async def test_a_run_that_ends_touches_its_context(store: Store) -> None:
    """In the transaction that ends it."""
    opened = await open_context(store, "ada", "default")
    assert await answered(store, context_tokens=15)
    touched = await store.contexts.get("ada", "default")
    assert (touched.last_model, touched.tokens_used) == ("oak", 15)
    assert touched.last_activity is not None
    assert touched.last_activity >= (opened.last_activity or 0)


async def test_only_the_open_context_of_that_conversation_is_touched(store: Store) -> None:
    """A run that ends after its context was closed, or began anew, changes nothing there."""
    talk = await store.conversations.get("ada", await begun(store))
    journal = await store.journals.open(await asked(store, talk))
    closed = await store.contexts.set_status("ada", "default", CLOSED)
    await journal.end(ending(context_tokens=1, decisions=("late",)))
    assert await store.contexts.get("ada", "default") == closed
    journal = await store.journals.open(await asked(store, talk))
    anew = await open_context(store, "ada", "default")
    await journal.end(ending(context_tokens=1, decisions=("late",)))
    assert await store.contexts.get("ada", "default") == anew


async def test_a_context_holds_at_most_110_percent(store: Store) -> None:
    """More is counted as that."""
    await begun(store)
    for tokens, counted in ((17_600, 17_600), (17_601, 17_600), (10**9, 17_600), (9, 9)):
        await answered(store, context_tokens=tokens)
        assert (await store.contexts.get("ada", "default")).tokens_used == counted


async def test_decisions_are_remembered_once(store: Store) -> None:
    """In the order in which they were made first."""
    await begun(store)
    await answered(store, decisions=("oaks 🌳", "elms"))
    await answered(store, decisions=("yews", "oaks 🌳", "yews"))
    found = (await store.contexts.get("ada", "default")).key_decisions
    assert found == ("oaks 🌳", "elms", "yews")


async def test_the_newest_decisions_are_kept(store: Store) -> None:
    """However many a model makes of them."""
    await begun(store)
    await answered(store, decisions=tuple(f"decision {n}" for n in range(MAX_DECISIONS)))
    await answered(store, decisions=("one", "more"))
    found = (await store.contexts.get("ada", "default")).key_decisions
    assert len(found) == MAX_DECISIONS
    assert (found[0], found[-2:]) == ("decision 2", ("one", "more"))


async def test_decisions_at_once_lose_nothing(store: Store, second: Store) -> None:
    """A run that ends, and a summary that another process saves."""
    talk = await begun(store)
    nodes = [
        await store.conversations.append("ada", talk, exchange(str(n)), parent=None)
        for n in range(12)
    ]
    summaries = [
        NewSummary(run_id=node, content="s", token_count=1, decisions=(f"{n}",))
        for n, node in enumerate(nodes)
    ]
    both = (store, second)
    await asyncio.gather(
        *(both[n % 2].summaries.save("ada", each) for n, each in enumerate(summaries)),
        answered(store, decisions=("12",)),
    )
    found = (await store.contexts.get("ada", "default")).key_decisions
    assert sorted(found, key=int) == [f"{n}" for n in range(13)]


async def test_idle_contexts_close(store: Store) -> None:
    """Active or suspended, whosever they are; those closed before are not counted."""
    for user in ("ada", "bob", "eve"):
        await open_context(store, user, "default")
    await store.contexts.set_status("bob", "default", SUSPENDED)
    await store.contexts.set_status("eve", "default", CLOSED)
    assert await store.contexts.close_idle(time() - 60) == 0
    assert await store.contexts.close_idle(time() + 60) == 2
    for user in ("ada", "bob"):
        assert (await store.contexts.get(user, "default")).status is CLOSED


async def test_marks_are_cleared_up_to_the_reviewed_head(store: Store) -> None:
    """Of messages and decisions; not while a run is open, and not past what was reviewed."""
    mark = Mark(Origin.WEB, "https://example.org/")
    metadata = '{"provenance":{"marks":[{"origin":"web"}],"is_private":true},"partial":true}'
    (message,) = answer()
    messages = (replace(message, metadata=metadata),)
    assert await answered(store, messages=messages, decisions=("Oaks.",), marks=frozenset({mark}))
    context = await store.contexts.get("ada", "default")
    assert context.marks == {mark}
    talk = await store.conversations.get("ada", context.conversation_id or 0)
    head_id = talk.head_id or 0
    clear = partial(store.contexts.clear_marks, "ada", "default")
    with pytest.raises(Conflict, match="has continued meanwhile"):
        await clear(head_id=head_id + 1)
    node = await store.runs.accept("ada", talk.id, said("?"))
    with pytest.raises(Conflict, match="has not ended"):
        await clear(head_id=head_id)
    await store.runs.cancel("ada", node.id)
    await clear(head_id=head_id)
    assert (await store.contexts.get("ada", "default")).marks == frozenset()
    (kept,) = [each for each in await store.runs.messages("ada", head_id) if each.metadata]
    assert kept.metadata == '{"provenance":{"is_private":true},"partial":true}'


async def test_a_context_in_which_something_goes_on_is_not_idle(store: Store) -> None:
    """A question that waits for its turn, or for a person, keeps it open; then it closes."""
    talk = await store.conversations.get("ada", await begun(store))
    await begun(store, "bob")
    node = await store.runs.accept("ada", talk.id, said("?"))
    assert await store.contexts.close_idle(time() + 60) == 1
    assert (await store.contexts.get("ada", "default")).status is ACTIVE
    await store.runs.cancel("ada", node.id)
    assert await store.contexts.close_idle(time() + 60) == 1
