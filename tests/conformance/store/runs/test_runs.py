"""A run is accepted, claimed by one process at a time, and ended once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dodona.core.domain.conversations.conversation import (
    Claim,
    Conversation,
    NewMessage,
    RunNode,
    RunStatus,
)
from dodona.core.errors import BadRequest, NotFound, RunFenced
from dodona.core.messages import RawMessage
from dodona.core.ports.journal import Effect, StepStart
from dodona.store import BudgetLine, BudgetUnit, Store, reserve
from dodona.store.db.text import to_json
from dodona.store.schema import messages, pins, reservations, runs, steps
from tests.conformance.store.saying import (
    all_nodes,
    answer,
    asked,
    claimed,
    deadlocks,
    ended,
    exchange,
    failure,
    next_of,
    rows_of,
    said,
)
from tests.stored import budgets_of

DONE = RunStatus.SUCCEEDED
KEPT = (runs, messages, steps, reservations, pins)  # what a run may change


async def head_of(store: Store, talk: Conversation) -> int | None:
    return (await store.conversations.get("ada", talk.id)).head_id


async def taken_over(store: Store, talk: Conversation, claim: Claim) -> Claim:
    """The next attempt of a run whose driver was lost."""
    store.runs.release_claim(claim)
    return await claimed(store, talk)


# -- from arrival to end ---------------------------------------------------------------------------


async def test_a_run_from_its_arrival_to_its_end(store: Store, talk: Conversation) -> None:
    """Queued with its question, running with an owner, ended as the head with its answer."""
    node = await store.runs.accept("ada", talk.id, said("why?"), session_key="oracle:web:ada:1")
    assert (node.status, node.attempt, node.owner) == (RunStatus.QUEUED, 0, None)
    assert (node.tokens, node.session_key, node.started_at) == (10, "oracle:web:ada:1", None)
    assert await head_of(store, talk) is None

    claim = await claimed(store, talk)
    assert (claim.run_id, claim.attempt, claim.is_resumed) == (node.id, 1, False)
    journal = await store.journals.open(claim)
    journal.pin(b"a tree")
    await journal.commit(lambda _: None)
    running = await store.runs.get("ada", node.id)
    assert (running.status, running.owner) == (RunStatus.RUNNING, claim.owner)
    assert running.started_at is not None

    assert await ended(store, claim, DONE, answer("because"))
    last = await store.runs.get("ada", node.id)
    assert (last.status, last.owner, last.tokens) == (DONE, None, 15)
    assert last.pins_hash is not None
    assert last.ended_at is not None
    assert await head_of(store, talk) == node.id
    kept = await store.runs.messages("ada", node.id)
    assert [(m.ordinal, m.role, m.content) for m in kept] == [
        (0, "user", "why?"),
        (1, "assistant", "because"),
    ]
    assert await next_of(store, talk.id) is None


async def test_a_run_ends_with_its_error(store: Store, talk: Conversation) -> None:
    """A failed run keeps why, and is the head: what was asked is part of the conversation."""
    claim = await asked(store, talk)
    details = {"tries": [1, 2.5, None]}
    error = failure("provider_failed", "nul \0, half \ud83d", details=details)
    assert await ended(store, claim, RunStatus.FAILED, error=error)
    node = await store.runs.get("ada", claim.run_id)
    assert node.status is RunStatus.FAILED
    assert node.error == failure("provider_failed", "nul ␀, half �", details=details)
    assert await head_of(store, talk) == claim.run_id


@pytest.mark.parametrize("status", [s for s in RunStatus if not s.has_ended])
async def test_a_run_ends_as_something_that_has_ended(
    store: Store, talk: Conversation, status: RunStatus
) -> None:
    claim = await asked(store, talk)
    with pytest.raises(BadRequest) as refused:
        await ended(store, claim, status)
    assert str(refused.value) == f"a run does not end as {status.value}."
    assert (await store.runs.get("ada", claim.run_id)).status is RunStatus.RUNNING


async def test_nothing_to_claim(store: Store, talk: Conversation) -> None:
    """An empty lane gives nothing; a lane that does not exist says so."""
    assert await next_of(store, talk.id) is None
    with pytest.raises(NotFound) as missing:
        await next_of(store, talk.id + 1)
    assert str(missing.value) == f"there is no conversation {talk.id + 1}."


@pytest.mark.parametrize("wrong", ["nul \0", "half \ud83d"])
async def test_a_lying_model_cannot_keep_a_run_from_ending(
    store: Store, talk: Conversation, wrong: str
) -> None:
    """Whatever text it sends, also as the id of a call, is kept, made visible where need be."""
    claim = await asked(store, talk)
    given = [
        NewMessage("assistant", wrong, 1, raw=RawMessage("openai", b'{"id":"\\u0000"}')),
        NewMessage("tool", wrong, 1, tool_call_id=wrong, key_insight=wrong),
        NewMessage(
            "assistant", "done", 1, mentioned_files=(wrong,), metadata=to_json({"id": wrong})
        ),
    ]
    assert await ended(store, claim, DONE, given)
    assert len(await store.runs.messages("ada", claim.run_id)) == 4


async def test_numbers_in_metadata_are_the_same_everywhere(
    store: Store, talk: Conversation
) -> None:
    """What is kept of a call's arguments does not depend on the database."""
    kept = '{"one":1.0,"small":5e-324,"third":0.333,"big":1152921504606846976,"far":1.5e15}'
    claim = await asked(store, talk)
    await ended(store, claim, DONE, [NewMessage("assistant", "x", 1, metadata=kept)])
    assert (await store.runs.messages("ada", claim.run_id))[1].metadata == kept


# -- the lane --------------------------------------------------------------------------------------


async def test_a_lane_is_first_in_first_out(store: Store, talk: Conversation) -> None:
    """Runs are claimed in the order in which they were accepted, each after the one before."""
    accepted = await asyncio.gather(
        *(store.runs.accept("ada", talk.id, said(str(n))) for n in range(12))
    )
    order: list[int] = []
    while (claim := await next_of(store, talk.id)) is not None:
        assert isinstance(claim, Claim)
        order.append(claim.run_id)
        assert await ended(store, claim, DONE, answer())
    assert order == sorted(node.id for node in accepted)
    nodes = await all_nodes(store, talk)
    assert list(nodes.values()) == [None, *order[:-1]]


async def test_a_busy_lane_tells_who_holds_it(
    store: Store, second: Store, talk: Conversation
) -> None:
    """The run and its owner, whoever asks."""
    claim = await asked(store, talk)
    await store.runs.accept("ada", talk.id, said("next"))
    for each in (store, second):
        busy = await next_of(each, talk.id)
        assert isinstance(busy, RunNode)
        assert (busy.id, busy.status) == (claim.run_id, RunStatus.RUNNING)
        assert busy.owner == claim.owner


async def test_claims_at_once_have_one_winner(
    store: Store, second: Store, talk: Conversation
) -> None:
    """However many ask, in one process and in another, one gets the run and the rest are told."""
    node = await store.runs.accept("ada", talk.id, said("?"))
    await store.runs.accept("ada", talk.id, said("next"))
    found = await asyncio.gather(
        *(next_of(each, talk.id) for _ in range(10) for each in (store, second))
    )
    claims = [one for one in found if isinstance(one, Claim)]
    assert [(claim.run_id, claim.attempt) for claim in claims] == [(node.id, 1)]
    assert all(isinstance(one, RunNode) and one.id == node.id for one in found if one != claims[0])


async def test_many_workers_drive_each_run_once(
    store: Store, second: Store, talk: Conversation
) -> None:
    """Two processes, eight workers, twenty runs: one at a time, each once, in one chain."""
    await asyncio.gather(*(store.runs.accept("ada", talk.id, said(str(n))) for n in range(20)))
    driven: list[tuple[int, int]] = []
    at_once = most = 0

    async def work(mine: Store) -> None:
        nonlocal at_once, most
        while (claim := await next_of(mine, talk.id)) is not None:
            if isinstance(claim, RunNode):
                await asyncio.sleep(0.001)
                continue
            at_once += 1
            most = max(most, at_once)
            driven.append((claim.run_id, claim.attempt))
            await asyncio.sleep(0)
            at_once -= 1
            assert await ended(mine, claim, DONE, answer())

    await asyncio.gather(*(work(each) for _ in range(4) for each in (store, second)))
    nodes = await all_nodes(store, talk)
    assert driven == [(node, 1) for node in nodes]
    assert most == 1
    assert list(nodes.values()) == [None, *list(nodes)[:-1]]


async def test_lanes_do_not_wait_for_each_other(store: Store, second: Store) -> None:
    """One run at a time is a rule of each conversation, not of the store."""
    talks = [await store.conversations.create("ada") for _ in range(5)]
    claims = [await asked(each, talk) for talk, each in zip(talks, [store, second] * 3)]  # noqa: B905
    assert len({claim.run_id for claim in claims}) == 5


# -- attempts and zombies --------------------------------------------------------------------------


async def test_each_claim_raises_the_attempt(store: Store, talk: Conversation) -> None:
    """A run that was given up is claimed again before any that is queued."""
    claim = await asked(store, talk)
    started = (await store.runs.get("ada", claim.run_id)).started_at
    await store.runs.accept("ada", talk.id, said("next"))
    for attempt in (2, 3, 4):
        claim = await taken_over(store, talk, claim)
        assert (claim.attempt, claim.is_resumed) == (attempt, True)
    node = await store.runs.get("ada", claim.run_id)
    assert (node.attempt, node.started_at) == (4, started)


Write = Callable[[Store, Claim], Awaitable[Any]]


async def _flushes(store: Store, claim: Claim) -> None:
    journal = await store.journals.open(claim)
    journal.begin(StepStart("pay", "pay", Effect.ONCE))
    await journal.flush()


async def _commits(store: Store, claim: Claim) -> None:
    line = BudgetLine("user:ada", "2026-11", BudgetUnit.TOKENS, 1, 10)
    where = {"run_id": claim.run_id, "step_key": "ask", "attempt": claim.attempt}
    journal = await store.journals.open(claim)
    await journal.commit(lambda tx: reserve(tx, [line], **where))


async def _pins(store: Store, claim: Claim) -> None:
    journal = await store.journals.open(claim)
    journal.pin(b"of the zombie")
    await journal.commit(lambda _: None)


WRITES: dict[str, Write] = {
    "finish": lambda store, claim: ended(store, claim, DONE, answer()),
    "fail": lambda store, claim: ended(store, claim, RunStatus.FAILED, error=failure("x")),
    "pin": _pins,
    "flush": _flushes,
    "commit": _commits,
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("is_over", [False, True], ids=["taken over", "ended by another"])
async def test_a_zombie_cannot_write(
    store: Store, talk: Conversation, write: Write, *, is_over: bool
) -> None:
    """Whoever was taken for dead is told so, and changes nothing."""
    zombie = await asked(store, talk)
    claim = await taken_over(store, talk, zombie)
    if is_over:
        await ended(store, claim, DONE, answer())
    before = [await rows_of(store, table) for table in KEPT]
    with pytest.raises(RunFenced) as fenced:
        await write(store, zombie)
    assert str(fenced.value) == (
        f"this process no longer owns run {zombie.run_id}: attempt 1 has ended or was taken over."
    )
    assert [await rows_of(store, table) for table in KEPT] == before
    if not is_over:
        assert await ended(store, claim, DONE, answer())


async def test_the_zombie_of_a_run_that_is_gone_is_told_the_same(
    store: Store, talk: Conversation
) -> None:
    """Its run was ended by another, and pruned: there is nothing that the head could move to."""
    zombie = await asked(store, talk)
    await ended(store, await taken_over(store, talk, zombie), DONE, answer())
    await store.conversations.prune("ada", zombie.run_id)
    with pytest.raises(RunFenced):
        await ended(store, zombie, DONE, answer())
    assert await head_of(store, talk) is None


async def test_a_run_ends_once(store: Store, talk: Conversation) -> None:
    """One compare-and-set decides; of many that end it at once, one does."""
    claim = await asked(store, talk)
    found = await asyncio.gather(
        *(ended(store, claim, status) for status in (DONE, RunStatus.CANCELLED) * 5),
        return_exceptions=True,
    )
    assert [one for one in found if not isinstance(one, RunFenced)] == [True]


# -- cancelling ------------------------------------------------------------------------------------


async def test_cancelling_a_queued_run_ends_it(store: Store, talk: Conversation) -> None:
    """It has its place after what was the head by then, and is not driven."""
    first = await store.conversations.append("ada", talk.id, exchange("a"))
    node = await store.runs.accept("ada", talk.id, said("never mind"))
    later = await store.runs.accept("ada", talk.id, said("but this"))
    assert await store.runs.cancel("ada", node.id) is RunStatus.CANCELLED
    assert await store.runs.cancel("ada", node.id) is RunStatus.CANCELLED
    cancelled = await store.runs.get("ada", node.id)
    assert (cancelled.parent_id, cancelled.attempt) == (first, 0)
    assert cancelled.ended_at is not None
    assert await head_of(store, talk) == first
    assert (await claimed(store, talk)).run_id == later.id


async def test_cancelling_a_running_run_is_durable_before_it_is_obeyed(
    store: Store, second: Store, talk: Conversation
) -> None:
    """Whoever drives it next knows; the run itself decides how it ends."""
    claim = await asked(store, talk)
    assert not claim.cancel_requested
    assert await second.runs.cancel("ada", claim.run_id) is RunStatus.RUNNING
    asked_at = (await store.runs.get("ada", claim.run_id)).cancel_requested_at
    assert asked_at is not None
    await store.runs.cancel("ada", claim.run_id)
    assert (await store.runs.get("ada", claim.run_id)).cancel_requested_at == asked_at

    claim = await taken_over(store, talk, claim)
    assert claim.cancel_requested
    assert await ended(store, claim, RunStatus.CANCELLED, answer("half an ans"))
    assert (await store.runs.get("ada", claim.run_id)).status is RunStatus.CANCELLED
    assert await head_of(store, talk) == claim.run_id


async def test_cancelling_what_has_ended_changes_nothing(store: Store, talk: Conversation) -> None:
    """The answer is how it ended."""
    claim = await asked(store, talk)
    await ended(store, claim, DONE, answer())
    before = await store.runs.get("ada", claim.run_id)
    assert await store.runs.cancel("ada", claim.run_id) is DONE
    assert await store.runs.get("ada", claim.run_id) == before


async def test_cancelling_and_ending_at_once(
    store: Store, second: Store, talk: Conversation, url: str
) -> None:
    """Both go through, in either order, and neither stands in the other's way.

    A deadlock is repeated and nobody is told, but each costs a second.
    """
    before = deadlocks(url)
    for _ in range(6):
        claim = await asked(store, talk)
        moved, *seen = await asyncio.gather(
            ended(store, claim, DONE, answer()),
            second.runs.cancel("ada", claim.run_id),
            next_of(second, talk.id),
            second.runs.cancel("ada", claim.run_id),
        )
        assert moved
        assert {seen[0], seen[2]} <= {DONE, RunStatus.RUNNING}
    assert deadlocks(url) == before


# -- the end is one transaction --------------------------------------------------------------------


async def test_the_end_of_a_run_is_all_or_nothing(store: Store, talk: Conversation) -> None:
    """When anything that goes with it fails, the run has not ended; it can be ended again."""
    first = await store.conversations.append("ada", talk.id, exchange("a"))
    claim = await asked(store, talk)
    line = BudgetLine("user:ada", "2026-11", BudgetUnit.TOKENS, 30, 1000)
    journal = await store.journals.open(claim)
    where = {"run_id": claim.run_id, "step_key": "ask", "attempt": 1}
    await journal.commit(lambda tx: reserve(tx, [line], **where))
    before = [await rows_of(store, table) for table in KEPT]

    def fail(_: Any) -> None:
        raise RuntimeError("no.")

    def also_reserve(tx: Any) -> None:
        reserve(tx, [line], run_id=None, step_key="more", attempt=0)

    with pytest.raises(RuntimeError, match=r"no\."):
        await ended(store, claim, DONE, answer(), also=[also_reserve, fail])
    assert [await rows_of(store, table) for table in KEPT] == before
    assert await head_of(store, talk) == first
    assert isinstance(await next_of(store, talk.id), RunNode)
    (budget,) = await budgets_of(store)
    assert (budget.used, budget.reserved) == (0, 30)

    assert await ended(store, claim, DONE, answer(), also=[also_reserve])
    assert await head_of(store, talk) == claim.run_id


async def test_refused_messages_leave_the_run_running(store: Store, talk: Conversation) -> None:
    """Nothing of an end that is refused is kept."""
    claim = await asked(store, talk)
    with pytest.raises(BadRequest):
        await ended(store, claim, DONE, [*answer(), said("", role="assistant")])
    assert len(await store.runs.messages("ada", claim.run_id)) == 1
    assert await ended(store, claim, DONE, answer())


# -- parents and the head --------------------------------------------------------------------------


async def test_a_run_follows_the_head_of_the_moment_it_begins(
    store: Store, talk: Conversation
) -> None:
    """Not the one of the moment it was accepted."""
    node = await store.runs.accept("ada", talk.id, said("?"))
    first = await store.conversations.append("ada", talk.id, exchange("a"))
    claim = await claimed(store, talk)
    assert claim.run_id == node.id
    assert (await store.runs.get("ada", node.id)).parent_id == first
    assert await ended(store, claim, DONE, answer())


@pytest.mark.parametrize("empty", [True, False], ids=["at the root", "after a run"])
async def test_a_run_keeps_its_parent_on_later_attempts(
    store: Store, talk: Conversation, *, empty: bool
) -> None:
    """What it has done was done after that; the head it missed makes it a branch."""
    parent = None if empty else await store.conversations.append("ada", talk.id, exchange("a"))
    claim = await asked(store, talk)
    moved_to = await store.conversations.append("ada", talk.id, exchange("meanwhile"))
    claim = await taken_over(store, talk, claim)
    assert (await store.runs.get("ada", claim.run_id)).parent_id == parent
    assert not await ended(store, claim, DONE, answer())
    assert await head_of(store, talk) == moved_to
    window = await store.conversations.load_window(
        "ada", talk.id, budget=1000, from_id=claim.run_id
    )
    assert [m.content for m in window.messages][-2:] == ["?", "so be it"]


async def test_a_run_after_an_older_node_is_a_branch(store: Store, talk: Conversation) -> None:
    """The head moves only when it is the run's parent."""
    first = await store.conversations.append("ada", talk.id, exchange("a"))
    last = await store.conversations.append("ada", talk.id, exchange("b"))
    branch = await store.runs.accept("ada", talk.id, said("else?"), parent=first)
    assert not await ended(store, await claimed(store, talk), DONE, answer())
    assert await head_of(store, talk) == last
    assert (await store.runs.get("ada", branch.id)).parent_id == first
    after = await store.runs.accept("ada", talk.id, said("and?"), parent=last)
    assert await ended(store, await claimed(store, talk), DONE, answer())
    assert await head_of(store, talk) == after.id


async def test_nothing_follows_a_run_that_has_not_ended(store: Store, talk: Conversation) -> None:
    """Neither a message, nor an exchange, nor the head; and it is not pruned or deleted."""
    claim = await asked(store, talk)
    run = claim.run_id
    attempts = [
        store.runs.accept("ada", talk.id, said("?"), parent=run),
        store.conversations.append("ada", talk.id, exchange("?"), parent=run),
        store.conversations.move_head("ada", talk.id, expected=None, to=run),
        store.conversations.load_window("ada", talk.id, budget=10, from_id=run),
        store.conversations.prune("ada", run),
        store.conversations.delete("ada", talk.id),
    ]
    for attempt in attempts:
        with pytest.raises(BadRequest, match=f"run {run} is running"):
            await attempt
    assert len(await all_nodes(store, talk)) == 1


async def test_the_parent_of_a_run_is_not_pruned_under_it(store: Store, talk: Conversation) -> None:
    first = await store.conversations.append("ada", talk.id, exchange("a"))
    claim = await asked(store, talk)
    with pytest.raises(BadRequest, match=f"run {claim.run_id} is running"):
        await store.conversations.prune("ada", first)
    assert await ended(store, claim, DONE, answer())


# -- what to look at after a start -----------------------------------------------------------------


async def test_open_lanes(store: Store, second: Store) -> None:
    """Those in which something can be claimed: not those that are driven."""
    talks = {
        name: await store.conversations.create("ada", title=name)
        for name in ("empty", "queued", "ended", "mine", "another's", "given up")
    }
    await store.runs.accept("ada", talks["queued"].id, said("?"))
    await ended(store, await asked(store, talks["ended"]), DONE, answer())
    await asked(store, talks["mine"])
    await store.runs.accept("ada", talks["mine"].id, said("next"))
    await asked(second, talks["another's"])
    store.runs.release_claim(await asked(store, talks["given up"]))
    assert await store.runs.claimable_lanes() == [talks["queued"].id, talks["given up"].id]
