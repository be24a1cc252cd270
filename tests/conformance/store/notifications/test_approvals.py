"""Calls that a person must allow: asked once, decided once, whoever decides and whatever dies."""

from __future__ import annotations

import asyncio
import dataclasses
from functools import partial
from time import time
from typing import Any

import pytest
from msgspec.structs import asdict

from dodona.core.domain.approvals import Approval, Decision
from dodona.core.domain.conversations.conversation import Claim, Conversation, RunStatus
from dodona.core.errors import BadRequest, Conflict, NotFound
from dodona.store import Store
from dodona.store.schema import approvals as table
from tests.conformance.store.saying import (
    approval,
    asked,
    deadlocks,
    ended,
    rows_of,
    said,
)
from tests.conformance.store.test_two_processes import taken
from tests.conformance.store.worker import Workers, told


@pytest.fixture
async def claim(store: Store, talk: Conversation) -> Claim:
    """Ada's run, which goes on."""
    return await asked(store, talk)


async def ask(store: Store, claim: Claim, call_id: str = "call", **more: Any) -> Approval:
    return await store.approvals.request("ada", approval(claim.run_id, call_id, **more))


async def decide(
    store: Store,
    claim: Claim,
    decision: Decision = Decision.APPROVED,
    *,
    by: str = "ada",
    note: str = "",
) -> Approval:
    return await store.approvals.decide(
        "ada", claim.run_id, "call", decision=decision, by=by, note=note
    )


# -- asking ----------------------------------------------------------------------------------------


async def test_what_is_asked_waits_for_a_decision(store: Store, claim: Claim) -> None:
    """It says all that was asked, and is found by its run and call."""
    question = approval(claim.run_id)
    before = time()
    found = await store.approvals.request("ada", question)
    assert before <= found.asked_at <= time()
    asked_for = dataclasses.asdict(question)
    del asked_for["arguments_hash"]  # for the store alone
    assert asdict(found) == {
        **asked_for,
        "marks": [],
        "asked_at": found.asked_at,
        "decision": Decision.PENDING,
        "decided_at": None,
        "decided_by": None,
        "note": "",
    }
    assert await store.approvals.get("ada", claim.run_id, "call") == found
    assert await store.approvals.pending("ada") == [found]


async def test_asked_again_it_is_the_same(store: Store, second: Store, claim: Claim) -> None:
    """With what was decided meanwhile, also when its run has ended since."""
    first = await ask(store, claim)
    again = await ask(second, claim, tool="other", arguments={}, reason="?", expires_at=1.0)
    assert again == first
    decided = await decide(store, claim, Decision.DENIED, note="not today")
    assert await ask(second, claim) == decided
    await ended(store, claim)
    assert await ask(second, claim) == decided


async def test_many_at_once_ask_once(store: Store, second: Store, claim: Claim) -> None:
    both = (store, second)
    found = await asyncio.gather(*(ask(both[n % 2], claim, reason=str(n)) for n in range(8)))
    assert all(each == found[0] for each in found)
    assert len(await rows_of(store, table)) == 1


async def test_what_waits_is_of_runs_that_go_on(
    store: Store, talk: Conversation, claim: Claim
) -> None:
    """The oldest first; what is decided waits no longer, nor what its run does not wait for."""
    other = await store.conversations.create("ada")
    late = await asked(store, other)
    calls = [(claim, "b"), (late, "a"), (claim, "call")]
    kept = [await ask(store, each, call_id) for each, call_id in calls]
    assert await store.approvals.pending("ada") == kept
    await decide(store, claim)
    assert await store.approvals.pending("ada") == kept[:2]
    await ended(store, claim, RunStatus.CANCELLED)
    assert await store.approvals.pending("ada") == [kept[1]]
    await store.conversations.delete("ada", talk.id)
    assert [row["call_id"] for row in await rows_of(store, table)] == ["a"]


async def test_arguments_are_shown_in_full(store: Store, claim: Claim) -> None:
    """A person decides about all of them, or is not asked; the reason may be cut."""
    arguments = {"text": "x" * 100_000, "many": [*range(600)], "deep": [[[[[[[[[[1]]]]]]]]]]}
    found = await ask(store, claim, arguments=arguments, reason="y" * 2_500)
    assert found.arguments == arguments
    assert found.reason == "y" * 2_000 + "… (500 more characters)"
    with pytest.raises(BadRequest) as caught:
        await ask(store, claim, "vast", arguments={"text": "x" * 200_000})
    assert str(caught.value) == (
        "its arguments have 200,011 characters, and a person can be asked about 200,000."
    )
    for odd in (10**9_999, float("inf"), {"set"}):
        with pytest.raises(BadRequest) as caught:
            await ask(store, claim, "odd", arguments={"odd": odd})
        assert str(caught.value) == "its arguments are no valid JSON."


async def test_known_secrets_are_not_shown(url: str) -> None:
    """The arguments and the reason."""
    async with await Store.open(url, redact=lambda t: t.replace("hunter2", "[secret]")) as store:
        claim = await asked(store, await store.conversations.create("ada"))
        text = "x" * 1_996 + "hunter2" * 2
        found = await ask(store, claim, arguments={"hunter2": text}, reason="hunter2?")
        assert found.arguments == {"[secret]": "x" * 1_996 + "[secret]" * 2}
        assert found.reason == "[secret]?"
        assert "hunter2" not in str(await rows_of(store, table))


# -- deciding --------------------------------------------------------------------------------------


@pytest.mark.parametrize("decision", [Decision.APPROVED, Decision.DENIED, Decision.EXPIRED])
async def test_a_decision_stays(
    store: Store, second: Store, claim: Claim, decision: Decision
) -> None:
    """The same again is fine, and that of the first; what it was about is as it was."""
    first = await ask(store, claim)
    before = time()
    decided = await decide(store, claim, decision, by="ada", note="so be it 🌳")
    assert (decided.decision, decided.decided_by, decided.note) == (decision, "ada", "so be it 🌳")
    assert decided.decided_at is not None
    assert before <= decided.decided_at <= time()
    assert (decided.arguments, decided.asked_at) == (first.arguments, first.asked_at)
    assert await decide(second, claim, decision, by="eve", note="me too") == decided
    assert await store.approvals.get("ada", claim.run_id, "call") == decided
    await ended(store, claim)
    assert await decide(second, claim, decision) == decided


@pytest.mark.parametrize(
    ("first", "then", "said"),
    [
        (
            Decision.APPROVED,
            Decision.DENIED,
            "the call 'call' of run {} was already approved by ada",
        ),
        (Decision.DENIED, Decision.APPROVED, "the call 'call' of run {} was already denied by ada"),
        (
            Decision.APPROVED,
            Decision.EXPIRED,
            "the call 'call' of run {} was already approved by ada",
        ),
        (
            Decision.EXPIRED,
            Decision.APPROVED,
            "the approval of the call 'call' of run {} has expired",
        ),
    ],
)
async def test_another_decision_comes_too_late(
    store: Store, second: Store, claim: Claim, first: Decision, then: Decision, said: str
) -> None:
    """And is told what was decided."""
    await ask(store, claim)
    decided = await decide(store, claim, first)
    with pytest.raises(Conflict) as refused:
        await decide(second, claim, then, by="eve")
    assert str(refused.value) == f"{said.format(claim.run_id)}. A decision is final."
    assert await store.approvals.get("ada", claim.run_id, "call") == decided


async def test_time_alone_decides_nothing(store: Store, claim: Claim) -> None:
    """Who waits decides that it is over: while nobody does, a person may still answer."""
    await ask(store, claim, expires_at=1.0)
    assert [each.call_id for each in await store.approvals.pending("ada")] == ["call"]
    assert (await decide(store, claim)).decision is Decision.APPROVED


async def test_nothing_is_asked_or_decided_for_a_run_that_has_ended(
    store: Store, claim: Claim
) -> None:
    """It would be for nothing."""
    await ask(store, claim)
    await ended(store, claim, RunStatus.FAILED)
    for attempt in (decide(store, claim), ask(store, claim, "another")):
        with pytest.raises(Conflict) as refused:
            await attempt
        assert str(refused.value) == f"run {claim.run_id} has ended."
    found = await store.approvals.get("ada", claim.run_id, "call")
    assert found.decision is Decision.PENDING


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"decision": Decision.PENDING}, "pending is not a decision. Use approved or denied."),
        ({"by": ""}, "the name of the person who decides must not be empty."),
        (
            {"by": "x" * 501},
            "the name of the person who decides must have at most 500 characters (got 501).",
        ),
        ({"note": "x" * 2_001}, "a note must have at most 2,000 characters (got 2,001)."),
    ],
    ids=str,
)
async def test_what_is_wrong_is_refused(
    store: Store, claim: Claim, more: dict[str, Any], said: str
) -> None:
    """Nothing is decided by it."""
    await ask(store, claim)
    with pytest.raises(BadRequest) as refused:
        await decide(store, claim, **more)
    assert str(refused.value) == said
    assert len(await store.approvals.pending("ada")) == 1


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"call_id": ""}, "the id of a call must not be empty."),
        ({"call_id": "x" * 501}, "the id of a call must have at most 500 characters (got 501)."),
        ({"tool": ""}, "the name of a tool must not be empty."),
    ],
    ids=str,
)
async def test_what_cannot_be_asked(
    store: Store, claim: Claim, more: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadRequest) as refused:
        await ask(store, claim, **more)
    assert str(refused.value) == said


async def test_anothers_are_not_found(store: Store, claim: Claim) -> None:
    """As what does not exist, in the same words."""
    await ask(store, claim)
    for run_id, call_id in ((claim.run_id, "call"), (claim.run_id, "none"), (999, "call")):
        for attempt in (
            store.approvals.get("bob", run_id, call_id),
            store.approvals.decide("bob", run_id, call_id, decision=Decision.APPROVED, by="bob"),
        ):
            with pytest.raises(NotFound) as refused:
                await attempt
            words = f"there is no approval for a call {call_id!r} of run {run_id}."
            assert str(refused.value) == words
    for run_id in (claim.run_id, 999):
        with pytest.raises(NotFound) as refused:
            await store.approvals.request("bob", approval(run_id, "new"))
        assert str(refused.value) == f"there is no run {run_id}."
    assert await store.approvals.pending("bob") == []
    assert [each.call_id for each in await store.approvals.pending("ada")] == ["call"]


# -- at once ---------------------------------------------------------------------------------------


async def test_of_many_who_decide_at_once_one_decides(
    store: Store, second: Store, claim: Claim, url: str
) -> None:
    """Those who decided the same are content, the others are told what was decided."""
    await ask(store, claim)
    before = deadlocks(url)
    sorts = (Decision.APPROVED, Decision.DENIED, Decision.EXPIRED)
    found = await asyncio.gather(
        *(decide((store, second)[n % 2], claim, sorts[n % 3], by=f"person {n}") for n in range(12)),
        return_exceptions=True,
    )
    kept = await store.approvals.get("ada", claim.run_id, "call")
    assert [each for each in found if isinstance(each, Approval)] == [kept] * 4
    assert [type(each) for each in found].count(Conflict) == 8
    assert deadlocks(url) == before


async def test_a_decision_and_the_end_of_its_run(
    store: Store, second: Store, claim: Claim, url: str
) -> None:
    """Whichever is first: a decision after the end is refused, and neither waits in a circle."""
    await ask(store, claim)
    before = deadlocks(url)
    decided, moved = await asyncio.gather(
        decide(second, claim), ended(store, claim), return_exceptions=True
    )
    assert moved is True
    kept = await store.approvals.get("ada", claim.run_id, "call")
    if isinstance(decided, Conflict):
        assert str(decided) == f"run {claim.run_id} has ended."
        assert kept.decision is Decision.PENDING
    else:
        assert decided == kept
    assert deadlocks(url) == before


async def test_two_processes_decide_at_once(
    store: Store, claim: Claim, url: str, workers: Workers
) -> None:
    """One wins, and the other is told."""
    await ask(store, claim)
    pair = [
        await workers.start("decide", url, claim.run_id, word) for word in ("approved", "denied")
    ]
    for worker in pair:
        assert await told(worker) == "ready"
    for worker in pair:
        assert worker.stdin is not None
        worker.stdin.write(b"\n")
    outcomes = [await told(worker) for worker in pair]
    kept = await store.approvals.get("ada", claim.run_id, "call")
    word = kept.decision.value
    refusal = (
        f"the call 'call' of run {claim.run_id} was already {word} by who {word}. "
        "A decision is final."
    )
    assert sorted(outcomes) == sorted([word, refusal])


async def test_an_approval_is_for_one_call_and_one_step(store: Store, claim: Claim) -> None:
    """Not for other arguments, not for another step, and not before it is given."""
    asked = approval(claim.run_id, arguments_hash="a" * 32)
    await store.approvals.request("ada", asked)
    use = partial(store.approvals.use, "ada", claim.run_id, "call")
    right: dict[str, str] = {"arguments_hash": "a" * 32, "step_key": "loop[1]/execute"}
    assert not await use(**right)
    await store.approvals.decide("ada", claim.run_id, "call", decision=Decision.APPROVED, by="ada")
    assert not await use(**{**right, "arguments_hash": "b" * 32})
    assert not await store.approvals.use("bob", claim.run_id, "call", **right)
    assert await use(**right)
    assert await use(**right)  # repeated after a crash
    assert not await use(**{**right, "step_key": "loop[2]/execute"})


async def test_a_denied_call_cannot_be_executed(store: Store, claim: Claim) -> None:
    """Nor one whose approval has expired."""
    for name, decision in (("a", Decision.DENIED), ("b", Decision.EXPIRED)):
        await store.approvals.request("ada", approval(claim.run_id, name))
        await store.approvals.decide("ada", claim.run_id, name, decision=decision, by="ada")
        assert not await store.approvals.use(
            "ada", claim.run_id, name, arguments_hash="0" * 32, step_key="s"
        )


# -- crashes ---------------------------------------------------------------------------------------


async def test_what_a_dead_process_asked_is_decided_for_the_next(
    store: Store, talk: Conversation, url: str, workers: Workers
) -> None:
    """The question outlives it, and the answer that came while nobody waited."""
    node = await store.runs.accept("ada", talk.id, said("?"))
    worker = await workers.start("ask", url, talk.id)
    assert await told(worker) == node.id
    worker.kill()
    await worker.wait()
    (waiting,) = await store.approvals.pending("ada")
    assert (waiting.run_id, waiting.call_id) == (node.id, "call")
    decider = await workers.start("decide", url, node.id, "approved")
    assert await told(decider) == "ready"
    assert decider.stdin is not None
    decider.stdin.write(b"\n")
    assert await told(decider) == "approved"
    decider.kill()  # what was acknowledged is there
    await decider.wait()
    claim = await taken(store, talk)
    assert (claim.run_id, claim.attempt) == (node.id, 2)
    again = await ask(store, claim)
    assert (again.decision, again.decided_by) == (Decision.APPROVED, "who approved")
    assert again.asked_at == waiting.asked_at
