"""A run in which nothing moves is noticed, its steps are failed, and the user gets an answer.

Time is virtual: an hour takes no time, and every second in these tests is exact.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from dodona.core.events import (
    TREE_ESCALATED,
    TREE_STUCK,
    TREE_UNRESPONSIVE,
    Event,
    Severity,
)
from dodona.trees import (
    FAILURE,
    RUNNING,
    Blackboard,
    Options,
    Outcome,
    Registry,
    Run,
    Status,
    Step,
    Tree,
    Watchdog,
    load,
)
from dodona.trees.nodes import KINDS
from dodona.trees.tooling.virtual_time import VirtualTimeLoop


class Yard:
    """Leaves that get stuck in every way, and a log of what happened when."""

    def __init__(self) -> None:
        self.registry = Registry(KINDS)
        self.events: list[Event] = []
        self.log: list[tuple[float, str]] = []
        self._leaves()
        self._odd_leaves()

    def at(self, what: str) -> None:
        self.log.append((round(asyncio.get_running_loop().time(), 3), what))

    def _leaves(self) -> None:
        leaf = self.registry.leaf

        @leaf("stuck")
        async def stuck(bb: Blackboard) -> None:
            self.at("stuck begins")
            try:
                await asyncio.Event().wait()
            finally:
                self.at("stuck ends")

        @leaf("slow")
        async def slow(bb: Blackboard, seconds: float) -> None:
            await asyncio.sleep(seconds)
            self.at("slow is done")

        @leaf("stream")
        async def stream(bb: Blackboard, step: Step) -> None:
            for _ in range(20):
                await asyncio.sleep(9)
                step.progress()

        @leaf("chatter")
        async def chatter(bb: Blackboard, step: Step) -> None:
            for word in range(20):
                await asyncio.sleep(9)
                step.emit(word)

    def _odd_leaves(self) -> None:
        leaf = self.registry.leaf

        @leaf("never-ready")
        def never_ready(bb: Blackboard) -> Status:
            self.at("never-ready")
            # Not quite for ever: a test that fails should not hang.
            return RUNNING if len(self.log) < 100 else FAILURE

        @leaf("deaf")
        async def deaf(bb: Blackboard, times: int) -> bool:
            """Swallows so many cancellations, and then says that all went well."""
            for _ in range(times):
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    self.at("deaf heard something")
            return True

        @leaf("say")
        def say(bb: Blackboard, word: str) -> None:
            self.at(word)

        @leaf("answer", writes=("answer",))
        def answer(bb: Blackboard) -> None:
            stuck = bb.get("_stuck")
            bb["answer"] = f"sorry, after {stuck['count']}: {stuck['nodes'][0]}"

    def words(self) -> list[str]:
        return [what for _, what in self.log]

    def tree(self, body: str) -> Tree:
        keys = ":blackboard-schema {:answer nil :n 0}"
        return load(f'(tree "main" {keys} {body})', registry=self.registry)

    def run(self, body: str, seconds: float = 10, **more: Any) -> Outcome:
        return self.play(lambda: self.made(body, Watchdog(seconds), **more).execute())

    def made(self, body: str, dog: Watchdog, **more: Any) -> Run:
        options = Options(watchdog=dog, emit=self.events.append, **more)
        return Run(self.tree(body), None, options)

    @staticmethod
    def play(work: Callable[[], Coroutine[Any, Any, Any]], limit: float = 100_000) -> Any:
        """Drive it in virtual time; nothing may be left running."""

        async def bounded() -> Any:
            result = await asyncio.wait_for(work(), limit)
            assert asyncio.all_tasks() == {asyncio.current_task()}
            return result

        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            return runner.run(bounded())

    def kinds(self) -> list[str]:
        return [event.type for event in self.events]


@pytest.fixture
def yard() -> Yard:
    return Yard()


# -- what is stuck ---------------------------------------------------------------------------------


def test_a_stuck_leaf_fails_and_the_fallback_runs(yard: Yard) -> None:
    """No progress for so long: the leaf is cancelled, has failed, and the tree goes on."""
    outcome = yard.run('(selector (stuck) (say :word "fallback"))')
    assert outcome.succeeded
    assert (outcome.end_reason, outcome.recovered) == ("success", False)
    assert yard.log == [(0, "stuck begins"), (10, "stuck ends"), (10, "fallback")]


def test_the_error_says_what_the_watchdog_did(yard: Yard) -> None:
    """The failed leaf's error is on the blackboard, and in the outcome when nothing mends it."""
    outcome = yard.run("(sequence work (stuck))")
    assert (outcome.status, outcome.end_reason) == (Status.FAILURE, "failure")
    assert outcome.error == {
        "node": "work/stuck",
        "type": "TreeError",
        "message": "no progress for 10 s. The watchdog stopped it.",
    }


def test_the_event_has_node_seconds_count_and_blackboard(yard: Yard) -> None:
    """Whoever listens learns where it was stuck, for how long, and what was known then."""
    yard.run("(sequence work (set :n 7) (inverter (stuck)))")
    (event,) = yard.events
    assert (event.type, event.source, event.severity) == (TREE_STUCK, "tree:main", Severity.ERROR)
    assert event.payload == {
        "nodes": ["work/stuck"],
        "seconds": 10.0,
        "count": 1,
        "blackboard": {"answer": None, "n": 7},
    }


def test_the_event_is_a_snapshot(yard: Yard) -> None:
    """What the tree writes later does not change what was reported."""
    yard.run("(sequence (set :n 1) (force-success (stuck)) (set :n 2))")
    assert yard.events[0].payload["blackboard"]["n"] == 1


def test_all_steps_that_run_are_failed(yard: Yard) -> None:
    """Nothing moves: each of the leaves that run is stuck, and each is named."""
    outcome = yard.run("(parallel both (stuck) (stuck))")
    assert not outcome.succeeded
    assert yard.events[0].payload["nodes"] == ["both/stuck", "both/stuck~2"]
    assert yard.words().count("stuck ends") == 2


def test_one_that_moves_keeps_the_others_alive(yard: Yard) -> None:
    """Progress is the run's, not a leaf's: while something moves, nothing is stuck."""
    outcome = yard.run("(parallel (slow :seconds 25) (stream))")
    assert outcome.succeeded
    assert yard.events == []


def test_a_leaf_that_just_makes_it(yard: Yard) -> None:
    """A leaf that ends before the timeout is left alone, and so are twenty in a row."""
    outcome = yard.run("(repeater :max-iterations 20 (slow :seconds 9.9))")
    assert (outcome.succeeded, yard.events) == (True, [])


def test_the_timeout_is_kept_exactly(yard: Yard) -> None:
    """The clock starts with the last progress, not with the watchdog's round."""
    yard.run("(sequence (slow :seconds 7) (force-success (stuck)))")
    assert yard.log[-1] == (17, "stuck ends")
    assert yard.events[0].payload["seconds"] == 10.0


def test_without_a_watchdog_nothing_is_struck(yard: Yard) -> None:
    """A host that plugs none in waits for as long as it takes."""
    outcome = yard.play(lambda: Run(yard.tree("(slow :seconds 86400)")).execute())
    assert outcome.succeeded


# -- what is not stuck -----------------------------------------------------------------------------


@pytest.mark.parametrize("leaf", ["stream", "chatter"])
def test_progress_keeps_a_leaf_alive_and_never_ticks(yard: Yard, leaf: str) -> None:
    """Three minutes of streaming are two ticks: the one that starts it, the one that ends it."""
    outcome = yard.run(f"({leaf})")
    assert (outcome.succeeded, outcome.ticks, yard.events) == (True, 2, [])


@pytest.mark.parametrize(
    "body",
    [
        "(wait :seconds 3600)",
        "(retry :times 4 :backoff 30 (fail))",
        "(parallel (wait :seconds 100) (wait :seconds 200))",
        "(sequence (wait :seconds 11) (wait :seconds 11) (slow :seconds 9))",
        "(timeout :seconds 100 (wait :seconds 50))",
        "(force-success (timeout :seconds 100 (never-ready)))",
    ],
)
def test_waiting_is_not_being_stuck(yard: Yard, body: str) -> None:
    """Waits and backoffs are in the tree because someone wants them."""
    yard.run(body)
    assert yard.events == []


def test_a_stuck_leaf_beside_a_wait_is_stuck(yard: Yard) -> None:
    """A timer somewhere excuses nobody else."""
    outcome = yard.run("(parallel :policy :require-one (wait :seconds 1000) (stuck))")
    assert outcome.succeeded
    assert yard.log == [(0, "stuck begins"), (10, "stuck ends")]


# -- leaves that do not play along -----------------------------------------------------------------


def test_a_sync_leaf_that_says_running_for_ever(yard: Yard) -> None:
    """There is no task to fail, so the run is stopped: it ends as stuck, and :finally runs."""
    outcome = yard.run('(selector (never-ready) (say :word "x")) :finally (say :word "finally")')
    assert (outcome.status, outcome.end_reason) == (Status.FAILURE, "stuck")
    assert outcome.error is not None
    assert outcome.error["message"] == "no progress for 10 s. The watchdog stopped it."
    assert yard.words() == ["never-ready", "finally"]
    assert yard.log[-1][0] == 10


def test_a_stuck_leaf_that_swallows_its_cancellation(yard: Yard) -> None:
    """It is told again after each grace period, that is reported, and it has failed anyway."""
    outcome = yard.run('(selector (deaf :times 3) (say :word "fallback"))', grace_seconds=2)
    assert outcome.succeeded
    assert yard.log == [
        (10, "deaf heard something"),
        (12, "deaf heard something"),
        (14, "deaf heard something"),
        (14, "fallback"),
    ]
    assert yard.kinds() == [TREE_STUCK, TREE_UNRESPONSIVE, TREE_UNRESPONSIVE]
    assert yard.events[1].payload == {
        "node": "deaf",
        "leaf": "deaf",
        "detached": False,
        "grace_seconds": 2,
    }


def test_a_leaf_that_ends_well_while_it_is_stopped_has_failed(yard: Yard) -> None:
    """What the watchdog has ended is a failure, whatever the leaf returns afterwards."""
    assert not yard.run("(deaf :times 1)").succeeded


# -- again and again -------------------------------------------------------------------------------

RETRY = "(retry :times 9 (stuck))"


def recovery(yard: Yard, body: str = "(answer)") -> Watchdog:
    tree = load(f'(tree "recovery" {body})', registry=yard.registry)
    return Watchdog(10, recovery=tree)


def test_three_strikes_run_the_recovery_tree_and_its_answer_is_the_outcome(yard: Yard) -> None:
    """Twice the step is failed; the third time the recovery tree answers, and :finally follows."""
    run = yard.made(f'{RETRY} :finally (say :word "finally")', recovery(yard))
    outcome = yard.play(run.execute)
    assert (outcome.status, outcome.end_reason, outcome.recovered) == (
        Status.SUCCESS,
        "stuck",
        True,
    )
    assert outcome.error is None
    assert outcome.blackboard["answer"] == "sorry, after 3: retry/stuck"
    assert yard.words() == ["stuck begins", "stuck ends"] * 3 + ["finally"]
    assert yard.log[-1] == (30, "finally")
    assert yard.kinds() == [TREE_STUCK, TREE_STUCK, TREE_STUCK, TREE_ESCALATED]
    assert [event.payload["count"] for event in yard.events] == [1, 2, 3, 3]
    assert yard.events[-1].severity is Severity.CRITICAL


def test_the_recovery_tree_sees_what_the_watchdog_saw(yard: Yard) -> None:
    """`_handle_stuck` is nodes, seconds and count, for expressions as for leaves."""
    dog = recovery(yard, '(set :n (get (blackboard :_stuck) "count"))')
    outcome = yard.play(yard.made(RETRY, dog).execute)
    assert outcome.blackboard["n"] == 3
    assert outcome.blackboard["_stuck"] == {"nodes": ["retry/stuck"], "seconds": 10.0, "count": 3}


def test_a_recovery_that_fails_is_a_failure(yard: Yard) -> None:
    """Its answer is the outcome, whatever it is."""
    outcome = yard.play(yard.made(RETRY, recovery(yard, "(fail)")).execute)
    assert (outcome.status, outcome.end_reason, outcome.recovered) == (
        Status.FAILURE,
        "stuck",
        True,
    )


@pytest.mark.parametrize("body", ["(stuck)", "(never-ready)", "(retry :times 9 (stuck))"])
def test_a_recovery_that_is_stuck_itself_ends(yard: Yard, body: str) -> None:
    """Nobody rescues the rescuer: it fails, :finally runs, the run ends."""
    run = yard.made(f'{RETRY} :finally (say :word "finally")', recovery(yard, body))
    outcome = yard.play(run.execute)
    assert (outcome.status, outcome.recovered) == (Status.FAILURE, True)
    assert yard.words()[-1] == "finally"
    assert yard.kinds().count(TREE_ESCALATED) <= 2


def test_without_a_recovery_tree_the_third_strike_ends_the_run(yard: Yard) -> None:
    """Stuck is then a failure; :finally runs and knows."""
    body = f'{RETRY} :finally (if (= (blackboard :_status) "stuck") (say :word "knows"))'
    outcome = yard.run(body)
    assert (outcome.status, outcome.end_reason, outcome.recovered) == (
        Status.FAILURE,
        "stuck",
        False,
    )
    assert yard.words()[-1] == "knows"


def test_strikes_more_than_a_minute_apart_do_not_add_up(yard: Yard) -> None:
    """The third strike counts only when the first is less than a minute old."""
    outcome = yard.run("(retry :times 6 (stuck))", seconds=31)
    assert outcome.end_reason == "failure"
    assert [event.payload["count"] for event in yard.events] == [1, 2, 2, 2, 2, 2]


def test_strikes_are_counted_per_tree_over_all_its_runs(yard: Yard) -> None:
    """Three runs of one tree that are stuck once each: the third gets the recovery tree."""
    dog = recovery(yard)

    async def three() -> list[Outcome]:
        return [await yard.made("(stuck)", dog).execute() for _ in range(3)]

    outcomes = yard.play(three)
    assert [outcome.recovered for outcome in outcomes] == [False, False, True]


def test_after_an_escalation_counting_begins_again(yard: Yard) -> None:
    """The fourth strike within the minute is a first one."""
    dog = Watchdog(10)
    assert [dog.record_strike("t", now) for now in (0, 1, 2, 3, 4)] == [
        (1, False),
        (2, False),
        (3, True),
        (1, False),
        (2, False),
    ]


def test_another_tree_has_its_own_strikes() -> None:
    """One bad tree does not escalate a good one."""
    dog = Watchdog(10)
    for now in (0, 1):
        dog.record_strike("bad", now)
    assert dog.record_strike("good", 2) == (1, False)


def test_exactly_a_minute_is_not_within_it() -> None:
    """Sixty seconds after the first, the first has been forgotten."""
    dog = Watchdog(10)
    assert [dog.record_strike("t", now) for now in (0, 30, 60)] == [
        (1, False),
        (2, False),
        (2, False),
    ]


# -- :finally --------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", ["(stuck)", "(never-ready)", RETRY, "(deaf :times 2)"])
def test_a_stuck_finally_cannot_hang_a_run(yard: Yard, body: str) -> None:
    """It is struck like anything else; the run keeps the outcome that its body had."""
    outcome = yard.run(f"(succeed) :finally {body}")
    assert (outcome.status, outcome.end_reason) == (Status.SUCCESS, "success")
    assert yard.kinds()[0] == TREE_STUCK


def test_a_stuck_finally_of_a_subtree_cannot_hang_a_run(yard: Yard) -> None:
    """The same inside a tree that another one uses."""
    registry = yard.registry
    tree = load(
        '(tree "main" (subtree "part")) (tree "part" (succeed) :finally (never-ready))',
        registry=registry,
    )
    outcome = yard.play(Run(tree, None, Options(watchdog=Watchdog(10))).execute)
    assert outcome.end_reason == "stuck"
    assert yard.log[-1][0] <= 30


def test_a_stuck_body_that_is_being_cancelled(yard: Yard) -> None:
    """A run that was cancelled, and whose leaf does not stop, is still ended in the end."""

    async def cancelled() -> Outcome:
        run = yard.made('(deaf :times 4) :finally (say :word "finally")', Watchdog(10))
        driven = asyncio.create_task(run.execute())
        await asyncio.sleep(1)
        run.cancel()
        return await driven

    outcome = yard.play(cancelled)
    assert (outcome.status, outcome.end_reason) == (Status.FAILURE, "cancelled")
    assert yard.words()[-1] == "finally"


def test_a_listener_that_raises_does_not_stop_the_watchdog(yard: Yard) -> None:
    """Telling comes last: a broken listener cannot keep a stuck run alive."""

    def broken(event: Event) -> None:
        raise ValueError("from the listener")

    async def driven() -> Outcome:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        tree = yard.tree(RETRY)
        return await Run(tree, None, Options(watchdog=Watchdog(10), emit=broken)).execute()

    assert yard.play(driven).end_reason == "stuck"
