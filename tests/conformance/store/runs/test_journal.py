"""The journal of a run in the store, with real trees: what has finished is not done again."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from sqlalchemy import text

from dodona.core.chunks import ContentChunk, StreamChunk
from dodona.core.domain.conversations.contexts import ContextStatus
from dodona.core.domain.conversations.conversation import (
    Claim,
    ClaimedRun,
    Conversation,
    RunEnd,
    RunRequest,
    RunStatus,
    StepOutput,
)
from dodona.core.errors import NotFound, RunDiverged, RunFenced, StoreError, TreeError
from dodona.core.ports.journal import Effect, StepRecord, StepStart
from dodona.net.redactor import Redactor
from dodona.store import BudgetLine, BudgetUnit, Reservation, RunJournal, Store, reserve, settle
from dodona.store.db.database import Database, Owners, StoreOperation, Transaction, log_orphaned
from dodona.store.db.statements import statement
from dodona.store.runs import journal as journal_module
from dodona.store.schema import pins, plugin_state, runs, steps
from dodona.trees import Blackboard, Options, Outcome, Registry, Run, Step, load
from dodona.trees.nodes import KINDS
from tests.conformance.store.saying import answer, asked, claimed, failure, rows_of
from tests.stored import budgets_of

T = TypeVar("T")
DONE = RunEnd(status=RunStatus.SUCCEEDED, messages=tuple(answer()))


class Cast:
    """Leaves of every effect. One may be told to hang, as if its process died in it."""

    def __init__(self, hang_at: str = "") -> None:
        self.registry = Registry(KINDS)
        self.calls: Counter[str] = Counter()
        self.keys: list[str] = []
        self.unknown: list[str] = []
        self.chunks: list[Any] = []
        self.reached = asyncio.Event()
        self.leaves: dict[str, Callable[[Blackboard], Any]] = {}
        self._hang_at = hang_at
        self._add()

    async def act(self, bb: Blackboard, name: str, step: Step | None = None) -> None:
        self.calls[name] += 1
        if step is not None:
            self.keys.append(step.key)
            if step.outcome_unknown:
                self.unknown.append(step.key)
            step.emit(StreamChunk(1, 1, ContentChunk(f"chunk of {step.key}")))
        if name in self.leaves:
            result = self.leaves[name](bb)
            if asyncio.iscoroutine(result):
                await result
        if name == self._hang_at:
            self.reached.set()
            await asyncio.Event().wait()
        bb["trail"] = [*bb["trail"], name]

    def _add(self) -> None:
        leaf = self.registry.leaf

        @leaf("fetch", effect="none")
        async def fetch(bb: Blackboard, step: Step) -> None:
            await self.act(bb, "fetch", step)

        @leaf("put", effect="keyed", reads=("to",))
        async def put(bb: Blackboard, step: Step, amount: int = 0) -> None:
            await self.act(bb, "put", step)

        @leaf("pay", effect="once", reads=("to",))
        async def pay(bb: Blackboard, amount: int = 0) -> None:
            await self.act(bb, "pay")

        @leaf("send", effect="once")
        async def send(bb: Blackboard, step: Step, amount: int = 0) -> None:
            await self.act(bb, "send", step)

        @leaf("shout", effect="once", thread=True)
        def shout(bb: Blackboard) -> None:
            self.calls["shout"] += 1
            self.leaves["shout"](bb)

        @leaf("raise", effect="once")
        async def raises(bb: Blackboard) -> None:
            await self.act(bb, "raise")
            raise ValueError("the secret is oak-1234")

    async def run(
        self, journal: RunJournal, body: str, values: dict[str, Any] | None = None
    ) -> Outcome:
        keys = ":blackboard-schema {:trail [] :to nil :found nil}"
        tree = load(f'(tree "main" {keys} {body})', registry=self.registry)
        options = Options(journal=journal, output=self.chunks.append)
        return await Run(tree, values, options).execute()


async def played(
    store: Store, claim: Claim, body: str, *, cast: Cast | None = None, **values: Any
) -> tuple[Outcome, Cast]:
    """The outcome of a run that is driven to its end, and who played in it."""
    cast = cast or Cast()
    return await cast.run(await store.journals.open(claim), body, values), cast


@asynccontextmanager
async def cut(
    store: Store, talk: Conversation, body: str, *, at: str, **values: Any
) -> AsyncIterator[tuple[Claim, Cast]]:
    """A run whose process is stuck in a leaf for good, and the claim of the next attempt."""
    claim, cast = await asked(store, talk), Cast(hang_at=at)
    journal = await store.journals.open(claim)
    lost = asyncio.create_task(cast.run(journal, body, values))
    reached = asyncio.create_task(cast.reached.wait())
    await asyncio.wait([lost, reached], return_when=asyncio.FIRST_COMPLETED)
    assert not lost.done(), lost
    store.runs.release_claim(claim)
    try:
        yield await claimed(store, talk), cast
    finally:
        reached.cancel()
        lost.cancel()
        await asyncio.gather(lost, reached, return_exceptions=True)


async def kept_steps(store: Store) -> dict[str, str]:
    return {row["key"]: row["status"] for row in await rows_of(store, steps)}


# -- resume ----------------------------------------------------------------------------------------


async def test_finished_steps_are_applied_and_not_repeated(
    store: Store, talk: Conversation
) -> None:
    """Their writes and chunks are as they were, and the run goes on where it was cut."""
    body = "(sequence (fetch) (put :amount 1) (pay :amount 2) (put) (fetch))"
    claim, cast = await asked(store, talk), Cast()
    journal = await store.journals.open(claim)
    whole = await cast.run(journal, body)
    await journal.flush()
    store.runs.release_claim(claim)
    again, silent = await played(store, await claimed(store, talk), body)
    assert whole.blackboard["trail"] == ["fetch", "put", "pay", "put", "fetch"]
    assert (again.succeeded, again.blackboard["trail"]) == (True, whole.blackboard["trail"])
    assert silent.chunks == cast.chunks != []
    assert silent.calls == {}


@pytest.mark.parametrize("at", ["put", "send", "pay"])
async def test_what_came_before_the_cut_is_durable(
    store: Store, talk: Conversation, at: str
) -> None:
    """The barrier of an effect carries all that was noted before it."""
    body = f"(sequence (fetch) (fetch) (selector ({at}) (succeed)) (fetch))"
    async with cut(store, talk, body, at=at) as (claim, first):
        outcome, cast = await played(store, claim, body)
    assert first.calls == {"fetch": 2, at: 1}
    assert cast.calls["fetch"] == 1
    assert outcome.succeeded
    trail = outcome.blackboard["trail"]
    assert trail == ["fetch", "fetch", *([at] if at != "pay" else []), "fetch"]


@pytest.mark.parametrize(("before", "at"), [("put", "fetch"), ("fetch", "put")])
async def test_steps_that_may_be_repeated_run_again(
    store: Store, talk: Conversation, before: str, at: str
) -> None:
    """With the same key, so that whoever is called can tell that it is the same call."""
    body = f"(sequence loop ({before}) ({at}))"
    async with cut(store, talk, body, at=at) as (claim, first):
        outcome, cast = await played(store, claim, body)
    assert outcome.succeeded
    assert cast.keys[-1] == first.keys[-1]
    assert cast.unknown == []


async def test_an_effect_that_was_cut_fails_as_unknown(store: Store, talk: Conversation) -> None:
    """It is not repeated: the tree gets a failure that says what to do."""
    async with cut(store, talk, "(pay :amount 1)", at="pay") as (claim, _):
        outcome, cast = await played(store, claim, "(pay :amount 1)")
    assert not outcome.succeeded
    assert cast.calls == {}
    assert outcome.error == {
        "code": "outcome_unknown",
        "message": "the process stopped during this step: its outcome is unknown.",
        "hint": "Verify before repeating it.",
    }


async def test_a_leaf_that_asks_is_told_that_its_outcome_is_unknown(
    store: Store, talk: Conversation
) -> None:
    """It finds out what happened; what it found is kept like any other result."""
    body = "(sequence (fetch) (send :amount 1))"
    async with cut(store, talk, body, at="send") as (claim, _):
        journal, cast = await store.journals.open(claim), Cast()
        assert (await cast.run(journal, body)).succeeded
        assert (cast.calls, cast.unknown) == ({"send": 1}, ["send"])
        await journal.flush()
        store.runs.release_claim(claim)
        again, silent = await played(store, await claimed(store, talk), body)
    assert again.blackboard["trail"] == ["fetch", "send"]
    assert silent.calls == {}


async def test_a_failure_is_applied_with_its_error(store: Store, talk: Conversation) -> None:
    """What failed before the cut has failed after it, for the same reason."""
    body = "(sequence (force-success (raise)) (send))"
    async with cut(store, talk, body, at="send") as (claim, first):
        body = "(sequence (force-success (raise)) (fail))"
        outcome, cast = await played(store, claim, body)
    assert (first.calls["raise"], cast.calls) == (1, {})
    assert outcome.error is not None
    assert "the secret is oak-1234" in outcome.error["message"]


PROGRAM = """
(sequence
  (repeater loop :max-iterations 2 (sequence (fetch) (put :amount 1)))
  (parallel tools :merge :last-wins (put :amount 2) (put :amount 3))
  (fetch))
"""


@pytest.mark.parametrize("number", range(7))
async def test_a_run_cut_at_any_step_ends_as_if_it_had_not_been(
    store: Store, talk: Conversation, number: int
) -> None:
    """Wherever it is cut; and no step that the journal has is done twice."""
    other = await store.conversations.create("ada")
    whole, all_of_it = await played(store, await asked(store, other), PROGRAM)
    cast = Cast()

    async def hang(_: Blackboard) -> None:
        if cast.calls.total() > number:
            cast.reached.set()
            await asyncio.Event().wait()

    cast.leaves = {"fetch": hang, "put": hang}
    claim = await asked(store, talk)
    lost = asyncio.create_task(cast.run(await store.journals.open(claim), PROGRAM))
    await cast.reached.wait()
    store.runs.release_claim(claim)
    claim = await claimed(store, talk)
    mine = [row for row in await rows_of(store, steps) if row["run_id"] == claim.run_id]
    finished = [row["key"] for row in mine if row["status"] == "succeeded"]
    outcome, again = await played(store, claim, PROGRAM)
    lost.cancel()
    await asyncio.gather(lost, return_exceptions=True)
    assert (outcome.succeeded, dict(outcome.blackboard)) == (True, dict(whole.blackboard))
    assert sorted(again.keys + finished) == sorted(all_of_it.keys)


# -- another request -------------------------------------------------------------------------------

BEGUN_WITH_ANOTHER = (
    "step {} started with a different request before, and must not run twice. "
    "The tree or its inputs have changed: this run cannot be resumed."
)


@pytest.mark.parametrize(
    ("before", "after", "values"),
    [
        ("(pay act :amount 1)", "(pay act :amount 2)", {}),
        ("(pay act :amount 1)", "(pay act :amount 1)", {"to": "eve"}),
        ("(pay act :amount 1)", "(send act :amount 1)", {}),
        ("(put act :amount 1)", "(pay act :amount 1)", {}),
        ("(pay act :amount 1)", "(put act :amount 1)", {}),
    ],
    ids=["an argument", "what it reads", "another leaf", "becomes once", "was once"],
)
@pytest.mark.parametrize("is_cut", [True, False], ids=["cut", "finished"])
async def test_another_request_under_an_effects_key_ends_the_run(
    store: Store,
    talk: Conversation,
    *,
    before: str,
    after: str,
    values: dict[str, Any],
    is_cut: bool,
) -> None:
    """It is neither the one that was done nor may it be done beside it."""
    before, after = (f"(sequence {body} (send last))" for body in (before, after))
    at = before.split("(")[2].split()[0] if is_cut else "send"
    async with cut(store, talk, before, at=at, to="bob") as (claim, _):
        cast = Cast()
        with pytest.raises(RunDiverged) as refused:
            await played(store, claim, after, cast=cast, **{"to": "bob", **values})
    assert str(refused.value) == BEGUN_WITH_ANOTHER.format("act")
    assert cast.calls == {}


async def test_another_request_of_a_repeatable_step_runs_live(
    store: Store, talk: Conversation
) -> None:
    """Nothing is lost by doing it anew, and what it leaves then is what is kept."""
    async with cut(store, talk, "(sequence (put :amount 1) (send))", at="send") as (claim, _):
        outcome, cast = await played(store, claim, "(put :amount 2)")
        assert (outcome.succeeded, cast.calls) == (True, {"put": 1})


# -- barriers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pay", "put", "shout"])
async def test_the_start_of_an_effect_is_durable_before_it_happens(
    store: Store, second: Store, talk: Conversation, name: str
) -> None:
    """Another process sees it in the database while the leaf runs."""
    cast, seen = Cast(), dict[str, str]()
    loop = asyncio.get_running_loop()

    async def look(_: Blackboard) -> None:
        seen.update(await kept_steps(second))

    def look_from_a_thread(bb: Blackboard) -> None:
        asyncio.run_coroutine_threadsafe(look(bb), loop).result(10)

    cast.leaves = {name: look_from_a_thread if name == "shout" else look}
    outcome, _ = await played(store, await asked(store, talk), f"(sequence ({name}))", cast=cast)
    assert outcome.succeeded
    assert seen == {name: "started"}


class Counting:
    """A real database that counts what is written to it."""

    def __init__(self, inner: Database) -> None:
        self._inner = inner
        self.writes = 0

    @property
    def owners(self) -> Owners:
        return self._inner.owners

    async def read(self, operation: StoreOperation[T]) -> T:
        return await self._inner.read(operation)

    async def write(self, operation: StoreOperation[T], *, soft: bool = False) -> T:
        return await self.submit(operation, soft=soft)

    def submit(
        self, operation: StoreOperation[T], *, soft: bool = False, on_orphaned: Any = log_orphaned
    ) -> asyncio.Future[T]:
        self.writes += 1
        return self._inner.submit(operation, soft=soft, on_orphaned=on_orphaned)

    async def close(self) -> None:
        await self._inner.close()


async def test_three_effects_at_once_cost_one_commit_at_their_start(
    store: Store, talk: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are noted together, so they are written together."""
    monkeypatch.setattr(
        journal_module, "_FLUSH_DELAY_SECONDS", 60
    )  # results wait for their barrier
    claim = await asked(store, talk)
    database = Counting(store.database)
    counted = Store(database, redact=str)
    cast, at_start = Cast(), list[int]()
    all_there = asyncio.Event()

    async def meet(_: Blackboard) -> None:
        at_start.append(database.writes)
        if len(at_start) == 3:
            all_there.set()
        await all_there.wait()

    cast.leaves = {"pay": meet, "send": meet}
    body = "(parallel (pay :amount 1) (send :amount 2) (pay :amount 3))"
    outcome, _ = await played(counted, claim, body, cast=cast)
    assert outcome.succeeded
    assert max(at_start) == 1


async def test_three_tool_rounds_commit_at_most_eight_times(
    store: Store, talk: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each call of a model its reservation, for each round of tools their start, the end.

    The results ride with the next of these. A claim is not counted: it is the lane's.
    """
    monkeypatch.setattr(journal_module, "_FLUSH_DELAY_SECONDS", 60)
    claim = await asked(store, talk)
    database = Counting(store.database)
    counted = Store(database, redact=str)
    journal, cast, holds = await counted.journals.open(claim), Cast(), list[Reservation]()
    line = BudgetLine("user:ada", "2026-11", BudgetUnit.TOKENS, 100, 10_000)

    async def call_model(_: Blackboard) -> None:
        settled = [holds.pop()] if holds else []

        def pay_and_reserve(tx: Transaction) -> Reservation:
            for hold in settled:
                settle(tx, hold, tokens=60, nanos=0)
            return reserve(tx, [line], run_id=claim.run_id, step_key="model", attempt=1)

        holds.append(await journal.commit(pay_and_reserve))

    cast.leaves = {"fetch": call_model}
    body = """(sequence
      (repeater loop :max-iterations 3
        (sequence (fetch) (parallel (pay :amount 1) (send) (put :amount 2))))
      (fetch))"""
    outcome = await cast.run(journal, body)
    assert outcome.succeeded
    journal.add_to_next_commit(lambda tx: settle(tx, holds[0], tokens=60, nanos=0))
    assert await journal.end(DONE) is not None
    assert database.writes <= 8
    assert set((await kept_steps(store)).values()) == {"succeeded"}
    (budget,) = await budgets_of(store)
    assert (budget.used, budget.reserved) == (240, 0)


async def test_what_an_effect_left_is_durable_soon_after(store: Store, talk: Conversation) -> None:
    """Without any barrier: a person may think for an hour about what comes next."""
    claim = await asked(store, talk)
    journal = await store.journals.open(claim)
    await Cast().run(journal, "(pay)")
    deadline = time.monotonic() + 10
    while await kept_steps(store) != {"pay": "succeeded"}:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


# -- the port, by hand -----------------------------------------------------------------------------


def start(key: str, effect: Effect = Effect.ONCE, asked_for: str = "h") -> StepStart:
    return StepStart(key, "pay", effect, asked_for)


async def test_a_journal_is_one_runs(store: Store) -> None:
    """The same key in another run is another step."""
    talks = [await store.conversations.create("ada") for _ in range(2)]
    for number, each in enumerate(talks):
        claim = await asked(store, each)
        journal = await store.journals.open(claim)
        assert journal.begin(start("act")) is None
        journal.finish("act", StepRecord("pay", True, {"found": number}))
        await journal.flush()
        store.runs.release_claim(claim)
        journal = await store.journals.open(await claimed(store, each))
        record = journal.begin(start("act"))
        assert record is not None
        assert (record.succeeded, record.writes) == (True, {"found": number})


async def test_many_flushes_at_once_lose_nothing(store: Store, talk: Conversation) -> None:
    """Every caller returns when its own notes are durable."""
    claim = await asked(store, talk)
    journal = await store.journals.open(claim)

    async def step(number: int) -> None:
        journal.begin(start(f"s{number}"))
        await journal.flush()
        assert (await kept_steps(store))[f"s{number}"] in ("started", "succeeded")
        journal.finish(f"s{number}", StepRecord("pay", True))
        await journal.flush()
        assert (await kept_steps(store))[f"s{number}"] == "succeeded"

    await asyncio.gather(*(step(number) for number in range(25)))
    assert len(await kept_steps(store)) == 25


async def test_a_cancelled_flush_forgets_nothing(store: Store, talk: Conversation) -> None:
    """Whoever flushes next writes what was noted, also when the first caller was cancelled."""
    journal = await store.journals.open(await asked(store, talk))
    for number in range(20):
        journal.begin(start(f"s{number}"))
        flushing = asyncio.create_task(journal.flush())
        await asyncio.sleep(0)
        if number % 2:
            await asyncio.sleep(0)
        flushing.cancel()
        await asyncio.gather(flushing, return_exceptions=True)
        journal.finish(f"s{number}", StepRecord("pay", True))
    await journal.flush()
    assert await kept_steps(store) == {f"s{number}": "succeeded" for number in range(20)}


async def test_a_step_and_what_it_costs_are_one_transaction(
    store: Store, talk: Conversation
) -> None:
    """An operation that fails takes the notes with it; they go with the next commit."""
    journal = await store.journals.open(await asked(store, talk))
    journal.begin(start("act"))

    def fail(_: Transaction) -> None:
        raise RuntimeError("no.")

    with pytest.raises(RuntimeError, match=r"no\."):
        await journal.commit(fail)
    assert await kept_steps(store) == {}
    assert await journal.commit(lambda _: 7) == 7
    assert await kept_steps(store) == {"act": "started"}


# -- what is kept ----------------------------------------------------------------------------------


@pytest.mark.parametrize("secret", ["oak-1234", 'oak"12\\34', "oak\n1234", "öak/1234"])
async def test_secrets_are_not_kept(url: str, secret: str) -> None:
    """Neither in what a step wrote, nor in its chunks, nor in its error."""

    def hide(told: str) -> str:
        return told.replace(secret, "***")

    async with await Store.open(url, redact=hide) as store:
        claim = await asked(store, await store.conversations.create("ada"))
        journal = await store.journals.open(claim)
        journal.begin(start("act"))
        left = StepRecord(
            "pay",
            False,
            writes={"found": {"key": secret, "in": [f"a {secret} b"]}, secret: 1},
            chunks=(StreamChunk(1, 1, ContentChunk(f"<{secret}>")),),
            error={"message": f"bad key {secret}"},
        )
        journal.finish("act", left)
        await journal.flush()
        store.runs.release_claim(claim)
        journal = await store.journals.open(
            await claimed(store, await store.conversations.get("ada", claim.conversation_id))
        )
        record = journal.begin(start("act"))
    assert record is not None
    assert record.writes == {"found": {"key": "***", "in": ["a *** b"]}, "***": 1}
    assert record.chunks == (StreamChunk(1, 1, ContentChunk("<***>")),)
    assert record.error == {"message": "bad key ***"}


UNKEEPABLE: dict[str, Any] = {
    "an object": object(),
    "a set": {1, 2},
    "bytes": b"oak",
    "not a number": float("nan"),
    "infinity": [float("inf")],
    "a map with numbers as keys": {1: "one"},
    "a cycle": (cycle := {}),
}
cycle["again"] = cycle


@pytest.mark.parametrize("value", UNKEEPABLE.values(), ids=UNKEEPABLE)
async def test_what_would_come_back_as_something_else_is_refused(
    store: Store, talk: Conversation, value: Any
) -> None:
    """With the leaf and the key: a resumed run must see what the first one saw."""
    cast = Cast()
    cast.leaves = {"pay": lambda bb: bb.__setitem__("found", value)}
    with pytest.raises(TreeError) as refused:
        await played(store, await asked(store, talk), "(sequence loop (pay))", cast=cast)
    assert str(refused.value).startswith("the output of leaf 'pay' at loop/pay cannot be stored: ")
    assert refused.value.hint == "Steps may write texts, numbers, lists and maps."


KEPT = [None, True, 0, -1, 2**60, 1.5, 1e300, "", 'ü\n"\\', "a\u2028b", [], {}, [[{"a": [None]}]]]


async def test_what_is_kept_comes_back_as_it_was(store: Store, talk: Conversation) -> None:
    """Every value of the language, of the same type, and the order of a map."""
    cast = Cast()
    cast.leaves = {"pay": lambda bb: bb.__setitem__("found", {"z": 1, "a": KEPT})}
    claim = await asked(store, talk)
    journal = await store.journals.open(claim)
    await cast.run(journal, "(pay)")
    await journal.flush()
    store.runs.release_claim(claim)
    outcome, again = await played(store, await claimed(store, talk), "(pay)")
    found = outcome.blackboard["found"]
    assert again.calls == {}
    assert list(found) == ["z", "a"]
    assert found["a"] == KEPT
    assert [type(value) for value in found["a"]] == [type(value) for value in KEPT]


async def test_payloads_expire_and_messages_stay(store: Store, talk: Conversation) -> None:
    """Only of runs that ended before that time; a replay then says that they are gone."""
    claim = await asked(store, talk)
    journal = await store.journals.open(claim)
    await Cast().run(journal, "(sequence (pay) (put))")
    await journal.end(DONE)
    other = await store.conversations.create("ada")
    running = await asked(store, other)
    open_journal = await store.journals.open(running)
    await Cast().run(open_journal, "(pay)")
    await open_journal.flush()

    ended = (await store.runs.get("ada", claim.run_id)).ended_at
    assert ended is not None
    assert await store.journals.delete_step_results(ended) == 0
    assert await store.journals.delete_step_results(ended + 1) == 2
    assert await store.journals.delete_step_results(ended + 1) == 0
    payloads = [(row["run_id"], row["payload"] is None) for row in await rows_of(store, steps)]
    assert payloads == [(claim.run_id, True), (claim.run_id, True), (running.run_id, False)]
    assert len(await store.runs.messages("ada", claim.run_id)) == 2
    replay = await store.journals.open(replace(claim, attempt=2))
    with pytest.raises(StoreError) as gone:
        await Cast().run(replay, "(sequence (pay) (put))")
    assert str(gone.value) == (
        "the result of step pay has expired. Runs that ended so long ago cannot be replayed."
    )


# -- broken ----------------------------------------------------------------------------------------


RENAME = statement(text("ALTER TABLE steps RENAME TO gone"))
RENAME_BACK = statement(text("ALTER TABLE gone RENAME TO steps"))


async def test_a_broken_database_ends_the_run(store: Store, talk: Conversation) -> None:
    """Before the effect: what cannot be noted does not happen."""
    claim, cast = await asked(store, talk), Cast()
    journal = await store.journals.open(claim)
    await store.database.write(lambda tx: tx.execute(RENAME))
    try:
        with pytest.raises(StoreError, match="steps"):
            await cast.run(journal, "(sequence (fetch) (pay))")
    finally:
        await store.database.write(lambda tx: tx.execute(RENAME_BACK))
    assert cast.calls == {"fetch": 1}


async def test_a_run_that_was_taken_over_ends_at_its_next_barrier(
    store: Store, talk: Conversation
) -> None:
    """The zombie's effect does not happen; the new driver's does."""
    claim, cast = await asked(store, talk), Cast()
    go_on = asyncio.Event()

    async def stall(_: Blackboard) -> None:
        cast.reached.set()
        await go_on.wait()

    cast.leaves = {"fetch": stall}
    body = "(sequence (fetch) (pay))"
    zombie = asyncio.create_task(cast.run(await store.journals.open(claim), body))
    await cast.reached.wait()
    store.runs.release_claim(claim)
    claim = await claimed(store, talk)
    outcome, alive = await played(store, claim, body)
    go_on.set()
    with pytest.raises(RunFenced):
        await zombie
    assert outcome.succeeded
    assert (cast.calls["pay"], alive.calls["pay"]) == (0, 1)


async def test_a_flush_that_nobody_waited_for_tells_its_failure_to_the_next(
    store: Store, talk: Conversation
) -> None:
    """A result that could not be kept ends the run, at its next step at the latest."""
    claim = await asked(store, talk)
    journal = await store.journals.open(claim)
    journal.begin(start("act"))
    await journal.flush()
    store.runs.release_claim(claim)
    await claimed(store, talk)
    journal.finish("act", StepRecord("pay", True))

    async def begin_until_refused() -> None:
        number = 0
        while True:
            number += 1
            journal.begin(start(f"next{number}", Effect.NONE))
            await asyncio.sleep(0.01)

    with pytest.raises(RunFenced):
        await asyncio.wait_for(begin_until_refused(), 10)


# -- what rides along ------------------------------------------------------------------------------


COUNT = statement(
    text("INSERT INTO plugin_state (user_id, plugin, key, value_json) VALUES ('n', 'n', :key, '')")
)


async def counted(store: Store) -> list[str]:
    return [row["key"] for row in await rows_of(store, plugin_state)]


async def test_what_rides_goes_with_the_next_commit(store: Store, talk: Conversation) -> None:
    """In its order, once; and before what is committed."""
    journal = await store.journals.open(await asked(store, talk))
    journal.add_to_next_commit(lambda tx: tx.execute(COUNT, key="a"))
    journal.add_to_next_commit(lambda tx: tx.execute(COUNT, key="b"))
    assert await counted(store) == []
    await journal.commit(lambda tx: tx.execute(COUNT, key="c"))
    assert await counted(store) == ["a", "b", "c"]
    journal.add_to_next_commit(lambda tx: tx.execute(COUNT, key="d"))
    await journal.end(DONE)
    assert await counted(store) == ["a", "b", "c", "d"]


async def test_what_rides_with_a_commit_that_fails_rides_with_the_next(
    store: Store, talk: Conversation
) -> None:
    journal = await store.journals.open(await asked(store, talk))
    journal.add_to_next_commit(lambda tx: tx.execute(COUNT, key="a"))

    def fail(_: Transaction) -> None:
        raise RuntimeError("no.")

    with pytest.raises(RuntimeError):
        await journal.commit(fail)
    assert await counted(store) == []
    await journal.commit(lambda _: None)
    assert await counted(store) == ["a"]


@pytest.mark.parametrize("turns", range(1, 4))
async def test_what_rides_is_done_once_though_the_caller_was_cancelled(
    store: Store, talk: Conversation, turns: int
) -> None:
    """The commit goes on; what comes next waits for it and does not bring it again."""
    journal = await store.journals.open(await asked(store, talk))
    for number in range(10):
        journal.add_to_next_commit(lambda tx, key=f"{number}": tx.execute(COUNT, key=key))
        journal.begin(start(f"s{number}"))
        committing = asyncio.create_task(journal.commit(lambda _: None))
        for _ in range(turns):
            await asyncio.sleep(0)
        committing.cancel()
        await asyncio.gather(committing, return_exceptions=True)
    await journal.end(DONE)
    assert await counted(store) == [f"{number}" for number in range(10)]
    assert len(await kept_steps(store)) == 10


# -- pins ------------------------------------------------------------------------------------------


async def test_pins_are_kept_once(store: Store, second: Store) -> None:
    """However many runs begin with them, in whichever process."""
    for each in (store, second, store):
        talk = await store.conversations.create("ada")
        journal = await each.journals.open(await asked(each, talk))
        journal.pin(b"the same")
        await journal.commit(lambda _: None)
        await journal.end(DONE)
    other = await store.journals.open(await asked(store, await store.conversations.create("ada")))
    other.pin(b"another")
    await other.end(DONE)
    assert sorted(bytes(row["content"]) for row in await rows_of(store, pins)) == [
        b"another",
        b"the same",
    ]
    hashes = [row["pins_hash"] for row in await rows_of(store, runs)]
    assert hashes[0] == hashes[1] == hashes[2] != hashes[3]


async def test_pins_that_no_run_needs_expire(store: Store) -> None:
    """Those of runs that ended before that time; a run that begins later keeps them again."""
    for content in (b"old", b"both"):
        journal = await store.journals.open(
            await asked(store, await store.conversations.create("ada"))
        )
        journal.pin(content)
        await journal.end(DONE)
    going = await asked(store, await store.conversations.create("ada"))
    journal = await store.journals.open(going)
    journal.pin(b"both")
    await journal.commit(lambda _: None)
    await store.journals.delete_step_results(time.time() - 60)
    assert len(await rows_of(store, pins)) == 2
    await store.journals.delete_step_results(time.time() + 60)
    assert [bytes(row["content"]) for row in await rows_of(store, pins)] == [b"both"]
    again = await store.journals.open(await asked(store, await store.conversations.create("ada")))
    again.pin(b"old")
    await again.commit(lambda _: None)
    assert len(await rows_of(store, pins)) == 2


# -- hard and soft ---------------------------------------------------------------------------------


class Watched(Counting):
    """A real database that remembers how hard each write was to be."""

    def __init__(self, inner: Database) -> None:
        super().__init__(inner)
        self.soft: list[bool] = []

    def submit(
        self, operation: StoreOperation[T], *, soft: bool = False, on_orphaned: Any = log_orphaned
    ) -> asyncio.Future[T]:
        self.soft.append(soft)
        return super().submit(operation, soft=soft, on_orphaned=on_orphaned)


@pytest.mark.parametrize(
    ("effect", "soft"),
    [(Effect.NONE, [True, True]), (Effect.KEYED, [False, True]), (Effect.ONCE, [False, True])],
)
async def test_only_the_start_of_an_effect_waits_for_the_disk(
    store: Store, talk: Conversation, effect: Effect, soft: list[bool]
) -> None:
    """Its result, and all that has no effect, need only outlive the process."""
    claim = await asked(store, talk)
    database = Watched(store.database)
    journal = await Store(database, redact=str).journals.open(claim)
    journal.begin(start("act", effect))
    await journal.commit(lambda _: None)
    journal.finish("act", StepRecord("pay", True))
    await journal.commit(lambda _: None)
    assert database.soft == soft


async def test_a_step_without_effect_is_written_when_it_has_finished(
    store: Store, talk: Conversation
) -> None:
    """That it began is of no use to anybody."""
    claim = await asked(store, talk)
    database = Watched(store.database)
    journal = await Store(database, redact=str).journals.open(claim)
    journal.begin(start("read", Effect.NONE))
    await journal.flush()
    assert database.writes == 0
    await journal.commit(lambda _: None)
    assert await kept_steps(store) == {}
    journal.finish("read", StepRecord("pay", True))
    await journal.flush()
    assert await kept_steps(store) == {"read": "succeeded"}


# -- leaving ---------------------------------------------------------------------------------------


async def test_a_journal_that_was_left_takes_no_more(store: Store, talk: Conversation) -> None:
    """Whoever brings something is refused, and nothing more is written."""
    claim = await asked(store, talk)
    journal = await store.journals.open(claim)
    journal.begin(start("kept"))
    await journal.flush()
    journal.begin(start("lost"))
    journal.finish("kept", StepRecord("pay", True))
    journal.stop_recording()

    async def call(what: str) -> None:
        calls: dict[str, Callable[[], Any]] = {
            "begin": lambda: journal.begin(start("more")),
            "finish": lambda: journal.finish("lost", StepRecord("pay", True)),
            "ride": lambda: journal.add_to_next_commit(lambda _: None),
            "pin": lambda: journal.pin(b""),
            "flush": journal.flush,
            "commit": lambda: journal.commit(lambda _: None),
            "end": lambda: journal.end(DONE),
        }
        result = calls[what]()
        if asyncio.iscoroutine(result):
            await result

    for what in ("begin", "finish", "ride", "pin", "flush", "commit", "end"):
        with pytest.raises(RunFenced) as refused:
            await call(what)
        assert str(refused.value) == (
            f"this process has released run {claim.run_id}: another one may continue it."
        )
    assert await kept_steps(store) == {"kept": "started"}
    store.runs.release_claim(claim)
    assert (await claimed(store, talk)).attempt == 2


async def test_leaving_stops_who_waits_for_a_write(store: Store, talk: Conversation) -> None:
    """A commit that was not given to the database yet never is."""
    journal = await store.journals.open(await asked(store, talk))
    first = asyncio.create_task(journal.commit(lambda tx: tx.execute(COUNT, key="a")))
    then = asyncio.create_task(journal.commit(lambda tx: tx.execute(COUNT, key="b")))
    await asyncio.sleep(0)
    journal.stop_recording()
    outcomes = await asyncio.gather(first, then, return_exceptions=True)
    assert isinstance(outcomes[1], RunFenced)
    assert await counted(store) == ["a"]


# -- the past --------------------------------------------------------------------------------------


async def test_chunks_of_the_past_come_in_their_order(store: Store, talk: Conversation) -> None:
    """Of all finished steps of all attempts, by their first number."""
    claim = await asked(store, talk)
    journal = await store.journals.open(claim)
    assert journal.past_chunks() == []
    for key, numbers in (("b", (1_000_002, 1_000_005)), ("a", (1_000_003, 1_000_001))):
        journal.begin(start(key))
        chunks = tuple(StreamChunk(7, number, ContentChunk(key)) for number in numbers)
        journal.finish(key, StepRecord("pay", True, chunks=chunks))
    journal.begin(start("cut"))
    await journal.flush()
    store.runs.release_claim(claim)
    claim = await claimed(store, talk)
    journal = await store.journals.open(claim)
    journal.begin(start("c"))
    journal.finish(
        "c", StepRecord("pay", True, chunks=(StreamChunk(7, 2_000_001, ContentChunk("c")),))
    )
    await journal.flush()
    store.runs.release_claim(claim)
    journal = await store.journals.open(await claimed(store, talk))
    found = journal.past_chunks()
    assert [chunk.seq for chunk in found] == [
        *(1_000_001, 1_000_002, 1_000_003, 1_000_005),
        2_000_001,
    ]
    assert found[0] == StreamChunk(7, 1_000_001, ContentChunk("a"))


STEP_TIMES = statement(
    text("UPDATE steps SET attempt = :attempt, started_at = :a, ended_at = :b WHERE key = :key")
)
RUN_TIME = statement(text("UPDATE runs SET started_at = :at"))


async def test_downtime_is_the_time_between_attempts(store: Store, talk: Conversation) -> None:
    """From the last that is known of one to the first that is known of the next."""
    claim = await asked(store, talk)
    journal = await store.journals.open(claim)
    assert journal.downtime_seconds == 0
    for key in ("one", "two", "three"):
        journal.begin(start(key))
        journal.finish(key, StepRecord("pay", True))
    await journal.flush()
    now = time.time()

    def history(tx: Transaction) -> None:
        tx.execute(RUN_TIME, at=now - 1000)
        tx.execute(STEP_TIMES, key="one", attempt=1, a=now - 990, b=now - 980)
        tx.execute(STEP_TIMES, key="two", attempt=1, a=now - 985, b=now - 970)
        # Nothing is known of the second attempt.
        tx.execute(STEP_TIMES, key="three", attempt=3, a=now - 500, b=None)

    await store.database.write(history)
    for _ in range(3):
        store.runs.release_claim(claim)
        claim = await claimed(store, talk)
    journal = await store.journals.open(claim)
    passed = time.time() - now
    assert 970 - 0.01 <= journal.downtime_seconds <= 970 + passed + 0.01


async def test_time_of_leaves_in_earlier_attempts(store: Store, talk: Conversation) -> None:
    """Parallel steps count once; those of other leaves, and unfinished ones, do not count."""
    claim = await asked(store, talk)
    journal = await store.journals.open(claim)
    for key, leaf in (("one", "wait"), ("two", "wait"), ("three", "pay"), ("four", "wait")):
        journal.begin(StepStart(key, leaf, Effect.NONE))
        journal.finish(key, StepRecord(leaf, succeeded=True))
    await journal.flush()

    def history(tx: Transaction) -> None:
        tx.execute(STEP_TIMES, key="one", attempt=1, a=1000, b=1040)
        tx.execute(STEP_TIMES, key="two", attempt=1, a=1010, b=1060)
        tx.execute(STEP_TIMES, key="three", attempt=1, a=1100, b=1200)
        tx.execute(STEP_TIMES, key="four", attempt=1, a=1300, b=None)

    await store.database.write(history)
    store.runs.release_claim(claim)
    journal = await store.journals.open(await claimed(store, talk))
    assert journal.past_seconds_of({"wait"}) == 60
    assert journal.past_seconds_of({"wait", "pay"}) == 160


async def test_downtime_of_a_run_of_which_nothing_is_known(
    store: Store, talk: Conversation
) -> None:
    """All of it, since it was first driven."""
    claim = await asked(store, talk)
    now = time.time()
    await store.database.write(lambda tx: tx.execute(RUN_TIME, at=now - 100))
    store.runs.release_claim(claim)
    journal = await store.journals.open(await claimed(store, talk))
    assert 100 - 0.01 <= journal.downtime_seconds <= 100 + (time.time() - now) + 0.01


async def test_steps_are_shown_to_their_user(store: Store, talk: Conversation) -> None:
    """In the order in which they began, with what they left; to nobody else."""
    claim = await asked(store, talk)
    journal = await store.journals.open(claim)
    journal.begin(start("z", asked_for="one"))
    journal.begin(start("a", Effect.NONE))
    journal.finish("a", StepRecord("pay", False, error={"code": "x"}))
    await journal.flush()
    first, second = await store.journals.list_steps("ada", claim.run_id)
    assert (first.key, first.status, first.effect, first.output) == ("z", "started", "once", None)
    assert (first.attempt, len(first.request_hash), first.ended_at) == (1, 32, None)
    assert (second.key, second.status) == ("a", "failed")
    assert second.output == StepOutput(error={"code": "x"})
    with pytest.raises(NotFound):
        await store.journals.list_steps("bob", claim.run_id)


# -- the end ---------------------------------------------------------------------------------------


async def in_context(store: Store, **more: Any) -> RunJournal:
    asking = RunRequest(user_id="ada", project_id="default", question="?", token_count=10, **more)
    found = await store.runs.submit(asking)
    assert isinstance(found, ClaimedRun)
    return await store.journals.open(found)


async def test_the_end_tells_the_context(store: Store) -> None:
    """Which model answered, how much it holds, and when; no more than a tenth past its budget."""
    before = time.time()
    for tokens, kept in ((500, 500), (4400, 4400), (4401, 4400), (10**9, 4400), (-5, 0)):
        journal = await in_context(store, token_budget=4000)
        await journal.end(replace(DONE, model=f"oak-{tokens}", context_tokens=tokens))
        context = await store.contexts.get("ada", "default")
        assert (context.last_model, context.tokens_used) == (f"oak-{tokens}", kept)
        assert context.last_activity is not None
        assert context.last_activity >= before


async def test_an_end_without_a_model_changes_only_the_size_of_the_context(store: Store) -> None:
    """The messages of a cancelled or failed run are a part of it, too."""
    journal = await in_context(store)
    await journal.end(replace(DONE, model="oak", context_tokens=7))
    before = await store.contexts.get("ada", "default")
    journal = await in_context(store)
    end = RunEnd(status=RunStatus.FAILED, error=failure("x"), messages=tuple(answer()))
    await journal.end(end)
    size = 2 * (10 + 5)  # two questions with their answers
    assert await store.contexts.get("ada", "default") == replace(before, tokens_used=size)


async def test_a_model_that_has_answered_wakes_its_context(store: Store) -> None:
    """A change of models is over then; a run without an answer leaves it suspended."""
    for model, status in (("", ContextStatus.SUSPENDED), ("oak", ContextStatus.ACTIVE)):
        journal = await in_context(store)
        await store.contexts.set_status("ada", "default", ContextStatus.SUSPENDED)
        await journal.end(replace(DONE, model=model, context_tokens=7))
        assert (await store.contexts.get("ada", "default")).status is status


async def test_the_end_does_not_open_a_context_that_was_closed(store: Store) -> None:
    """It stays as it was when it was closed."""
    journal = await in_context(store)
    closed = await store.contexts.set_status("ada", "default", ContextStatus.CLOSED)
    await journal.end(replace(DONE, model="oak", context_tokens=7))
    assert await store.contexts.get("ada", "default") == closed


async def test_the_end_says_where_the_conversation_is(store: Store, talk: Conversation) -> None:
    """The time that whoever asks next compares with; none if the head was moved elsewhere."""
    journal = await store.journals.open(await asked(store, talk))
    moved = await journal.end(DONE)
    assert moved == (await store.conversations.get("ada", talk.id)).updated_at
    journal = await store.journals.open(await asked(store, talk))
    await store.conversations.append("ada", talk.id, answer())
    assert await journal.end(DONE) is None


async def test_an_end_waits_for_what_is_being_written(store: Store, talk: Conversation) -> None:
    """Commits of a run come one after the other, and the end is the last."""
    journal = await store.journals.open(await asked(store, talk))
    tasks = [
        asyncio.create_task(journal.commit(lambda tx, key=f"{n}": tx.execute(COUNT, key=key)))
        for n in range(5)
    ]
    await asyncio.sleep(0)
    await journal.end(DONE)
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    done = [n for n, outcome in enumerate(outcomes) if outcome == 1]
    assert await counted(store) == [f"{n}" for n in done]
    assert all(isinstance(each, RunFenced) for each in outcomes if each != 1)


async def test_secrets_in_an_error_are_not_kept(url: str) -> None:
    """Nor in what a step left, in whichever form a redactor knows them."""
    redactor = Redactor()
    secret = 'ö"ak\\12\n34'
    redactor.add("key", secret)
    async with await Store.open(url, redact=redactor.redact) as store:
        claim = await asked(store, await store.conversations.create("ada"))
        journal = await store.journals.open(claim)
        journal.begin(start("act"))
        writes = {"plain": f"<{secret}>", "json": json.dumps(secret), "fine": 'a "quote"\n'}
        journal.finish("act", StepRecord("pay", True, writes=writes))
        await journal.end(RunEnd(status=RunStatus.FAILED, error=failure("x", f"bad {secret}")))
        (step,) = await store.journals.list_steps("ada", claim.run_id)
        node = await store.runs.get("ada", claim.run_id)
    assert step.output == StepOutput(
        {"plain": "<[secret key]>", "json": '"[secret key]"', "fine": 'a "quote"\n'}
    )
    assert node.error == failure("x", "bad [secret key]")
